// Creates elements. Strings always become text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, String(value));
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined).map(asNode));
  return element;
}

const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

// Roving tabindex: one item of the group is in the tab order, and the arrow keys move the focus.
export function rove(group, items, keys = { next: "ArrowRight", previous: "ArrowLeft" }) {
  items.forEach((item, number) => item.setAttribute("tabindex", number === 0 ? "0" : "-1"));
  const activate = (item) => {
    for (const other of items) other.setAttribute("tabindex", other === item ? "0" : "-1");
  };
  group.addEventListener("focusin", (event) => {
    const item = items.find((candidate) => candidate === event.target);
    if (item) activate(item);
  });
  group.addEventListener("keydown", (event) => {
    const at = items.indexOf(event.target);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const goal = { [keys.next]: at + 1, [keys.previous]: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (goal === undefined) return;
    event.preventDefault();
    items[Math.max(0, Math.min(items.length - 1, goal))].focus();
  });
}

const plain = new Intl.NumberFormat("en");
export const count = (number) => plain.format(number);
export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.1) return "<\u00a00.1\u00a0%";
  if (value < 100 && value > 99.9) return ">\u00a099.9\u00a0%";
  return `${value < 10 && value > 0 ? value.toFixed(1) : Math.round(value)}\u00a0%`;
}

export function date(text) {
  const moment = text ? new Date(text) : null;
  return moment && !Number.isNaN(moment.getTime())
    ? moment.toLocaleDateString("en", { year: "numeric", month: "short", day: "numeric" })
    : "";
}
