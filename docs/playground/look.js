// Small things that every part of the page uses.

const $ = (id) => document.getElementById(id);
const NAMES = ["A", "B", "C"];

/** Makes an element: with a class, and what is in it, as text unless they are elements. */
function make(tag, name, ...inside) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...inside);
  return element;
}

function duration(ns) {
  if (ns < 10_000) return `${ns} ns`;
  if (ns < 1_000_000) return `${(ns / 1000).toFixed(ns % 1000 ? 3 : 0)} µs`;
  return `${(ns / 1_000_000).toFixed(3)} ms`;
}

/** The colour of a packet. */
function kind(packet) {
  if (/RNR/.test(packet.answer ?? "")) return "c-rnr";
  if (/NAK/.test(packet.answer ?? "")) return "c-nak";
  if (packet.message) return "c-cm";
  if (/CNP|notification/i.test(packet.opcode)) return "c-cnp";
  if (/esponse|Atomic Ack/i.test(packet.opcode)) return "c-resp";
  if (/Acknowledge/.test(packet.opcode)) return "c-ack";
  return "c-req";
}

function words(packet) {
  const done = packet.done.length ? `, ${packet.done.join(", ")}` : "";
  const answer = packet.answer && packet.answer !== "ACK" ? `, ${packet.answer}` : "";
  const marked = packet.ce && !packet.done.includes("marked") ? ", marked" : "";
  const copy = packet.copy_of == null ? "" : ", copy";
  // Receivers on QP 1 look at no PSN.
  const psn = packet.message ? "" : `, PSN ${packet.psn}`;
  return `${packet.opcode}${psn}${answer}${done}${marked}${copy}`;
}
