// A file into the memory: sent, then followed while the server works it off.

import { importFile, showJob } from "./api.js";
import { byId, count, counted } from "./dom.js";
import { report, session, tell } from "./session.js";

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
      say(error.message, null);
      report(error);
    }
    refresh();
  });
  return refresh;
}

async function upload(store, file, origin) {
  byId("upload-progress").hidden = false;
  say(`Sending ${file.name}`, 0);
  let job = await importFile(store, file, origin, (share) => say(`Sending ${file.name}`, share));
  while (job.finished_at === null) {
    say(job.total === null ? "Reading the file" : `${count(job.done)} of ${counted(job.total, "pair")}`, job.total ? job.done / job.total : null);
    await new Promise((resolve) => setTimeout(resolve, POLLING));
    job = await showJob(job.id);
  }
  if (job.done > 0) tell("changed");
  if (job.state === "failed") throw new Error(`The file was not added: ${job.error}.`.replace(/\.\.$/, "."));
  say(summary(job), 1);
}

function summary(job) {
  const parts = [
    counted(job.added, "new sentence"),
    job.replaced && `${count(job.replaced)} corrected`,
    job.duplicates && `${count(job.duplicates)} known from elsewhere`,
    job.unchanged && `${count(job.unchanged)} there already`,
    job.too_long && `${count(job.too_long)} too long`,
    ...Object.entries(job.dropped).map(([reason, many]) => `${count(many)} left out: ${reason}`),
  ];
  return `Done: ${parts.filter(Boolean).join(", ")}.`;
}

function say(text, share) {
  byId("upload-state").textContent = text;
  const bar = byId("upload-bar");
  if (share === null) bar.removeAttribute("value");
  else bar.value = share;
}
