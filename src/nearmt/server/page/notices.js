// Messages at the bottom of the window: confirmations, some with an undo button, and errors.

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
  closeLater(notice, SECONDS[kind] * 1000, close);
}

// Close a message after a while, but not while the user points at it or has the focus in it.
function closeLater(notice, milliseconds, close) {
  const tryClose = () => {
    if (notice.matches(":hover, :focus-within")) setTimeout(tryClose, 2000);
    else close();
  };
  setTimeout(tryClose, milliseconds);
}

export const notifyError = (error) => notify(error.message, { kind: "bad" });
