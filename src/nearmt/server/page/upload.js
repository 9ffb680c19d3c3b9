// Uploads a file and shows the progress of its import.

import { importFile, showJob } from "./api.js";
import { byId, count, counted } from "./dom.js";
import { emit, report, session } from "./session.js";

const POLLING = 400; // milliseconds

export function setUpUpload() {
  const file = byId("upload-file");
  const start = byId("upload-start");
  const refresh = () => (start.disabled = !file.files.length || !session.mayEdit);
  file.addEventListener("change", refresh);
  byId("upload-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!file.files.length) return;
    start.disabled = true;
    try {
      await upload(session.name, file.files[0], byId("upload-origin").value.trim());
      byId("upload-form").reset();
    } catch (error) {
      showProgress(error.message, null);
      report(error);
    }
    refresh();
  });
  return refresh;
}

async function upload(store, file, origin) {
  byId("upload-progress").hidden = false;
  showProgress(`Uploading ${file.name}`, 0);
  let job = await importFile(store, file, origin, (share) => showProgress(`Uploading ${file.name}`, share));
  while (job.finished_at === null) {
    showProgress(job.total === null ? "Reading file" : `${count(job.done)} of ${counted(job.total, "pair")}`, job.total ? job.done / job.total : null);
    await new Promise((resolve) => setTimeout(resolve, POLLING));
    job = await showJob(job.id);
  }
  if (job.done > 0) emit("changed");
  if (job.state === "failed") throw new Error(`The file was not added: ${job.error}.`.replace(/\.\.$/, "."));
  showProgress(summary(job), 1);
}

function summary(job) {
  const parts = [
    counted(job.added, "new sentence"),
    job.replaced && `${count(job.replaced)} corrected`,
    job.duplicates && `${count(job.duplicates)} already stored from another origin`,
    job.unchanged && `${count(job.unchanged)} unchanged`,
    job.too_long && `${count(job.too_long)} too long`,
    ...Object.entries(job.dropped).map(([reason, many]) => `${count(many)} left out: ${reason}`),
  ];
  return `Done: ${parts.filter(Boolean).join(", ")}.`;
}

function showProgress(text, share) {
  byId("upload-state").textContent = text;
  const bar = byId("upload-bar");
  if (share === null) bar.removeAttribute("value");
  else bar.value = share;
}
