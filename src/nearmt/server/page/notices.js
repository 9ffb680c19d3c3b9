// Messages at the foot of the window: what was done, with a way back, and what went wrong.

import { byId, make } from "./dom.js";

const SECONDS = { good: 9, bad: 20 };

export function notify(text, { kind = "good", action = null } = {}) {
  const box = byId("notices");
  const close = () => notice.remove();
  const notice = make(
    "div",
    { class: `notice notice-${kind}`, role: kind === "bad" ? "alert" : null },
    make("p", {}, text),
    action &&
      make(
        "button",
        {
          type: "button",
          class: "quiet",
          on: {
            click: () => {
              close();
              action.run();
            },
          },
        },
        action.name,
      ),
    make("button", { type: "button", class: "quiet close", "aria-label": "Close this message", on: { click: close } }, "×"),
  );
  while (box.children.length >= 3) box.firstElementChild.remove();
  box.append(notice);
  wait(notice, SECONDS[kind] * 1000, close);
}

// A message does not go while somebody is reading or using it.
function wait(notice, milliseconds, close) {
  const later = () => {
    if (notice.matches(":hover, :focus-within")) setTimeout(later, 2000);
    else close();
  };
  setTimeout(later, milliseconds);
}

export const complain = (error) => notify(error.message, { kind: "bad" });
