// Puts the parts together: time, actions, and the address that carries a run.

const engine = await loadEngine(WASM);
const state = { packets: [], events: [], flying: new Set(), chosen: null, view: null, setup: {}, playing: false };

const ladder = new Ladder($("ladder"), choose);
const wire = new Wire($("wire"), choose);
const packetView = new PacketView($("packet"), engine, act);
const sides = [...document.querySelectorAll(".side")].map((box, number) => new SideView(box, number, engine, act));

const lesson = new LessonView($("lesson"), $("choice"), (run) => begin(run, null) && keep());

/** Asks for a change; what is wrong with it is said to the reader. */
function change(request) {
  $("problem").hidden = true;
  try {
    take(engine.ask(request));
    return true;
  } catch (error) {
    $("problem").textContent = error.message;
    $("problem").hidden = false;
    return false;
  }
}

function act(action) {
  return change({ ask: "act", action }) && keep();
}

function take(view) {
  if (view.fresh) (state.packets = []), (state.events = []), state.flying.clear();
  for (const packet of view.packets) {
    state.packets[packet.id] = packet;
    if (packet.fate === "flying") state.flying.add(packet.id);
    else state.flying.delete(packet.id);
  }
  state.events.push(...view.events);
  state.view = view;
  if (state.chosen >= state.packets.length) state.chosen = null;
  wire.layOut(view.ends, state.setup.delay ?? 5000);
  ladder.set(state.packets, view.fresh ? state.packets.keys() : view.packets.map((packet) => packet.id));
  drawWire(view.now);
  sides.forEach((side, number) => side.set(view.sides[number], view.ends[number], view.ends[number ^ 1]));
  if (state.chosen == null || view.fresh || view.packets.some((packet) => packet.id === state.chosen)) packetView.show(state.chosen);
  drawEvents();
  lesson.look(state);
  $("moves").max = view.moves;
  $("moves").value = view.cursor;
  $("cursor").textContent = `${view.cursor} of ${view.moves}`;
  $("back").disabled = $("restart").disabled = view.cursor === 0;
  $("step").disabled = view.next == null && view.cursor === view.moves;
}

function drawWire(clock) {
  wire.draw(state.packets, state.flying, clock, state.chosen);
  $("clock").textContent = duration(Math.round(clock));
}

/** The last events; all are there when the page goes back. */
function drawEvents() {
  const shown = state.events.slice(-200);
  $("events").replaceChildren(...shown.map((event) => {
    const text = make("span", "", event.text);
    if (event.rule) {
      const rule = make("button", "", event.rule);
      rule.addEventListener("click", () => showRule(event.rule));
      text.append(" ", rule);
    }
    return make("li", event.what, make("time", "", duration(event.at)), make("b", "", event.side == null ? "" : NAMES[event.side]), text);
  }));
  $("events").scrollTop = $("events").scrollHeight;
}

function choose(id) {
  state.chosen = id;
  ladder.select(id);
  packetView.show(id);
  drawWire(state.clock ?? state.view.now);
}

function showRule(rule) {
  $("rule-title").textContent = rule;
  const { code, tests } = RULES[rule];
  const part = (title, names) => [make("h3", "", title), make("ul", "", ...names.map((name) => make("li", "", name)))];
  $("rule").querySelector("div").replaceChildren(...part("Code that follows it", code), ...part("Tests that check it", tests));
  $("rule").showModal();
}

const forward = () => change({ ask: "forward" });

function step() {
  pause();
  if (forward()) keep();
}

function goTo(at) {
  pause();
  if (change({ ask: "goto", at })) keep();
}

/** From one step to the next, time passes at the speed wanted; where nothing happens for long, it is short. */
const LONGEST = 1200;
function play() {
  state.playing = true;
  $("play").textContent = "Pause";
  $("play").setAttribute("aria-pressed", "true");
  let since = performance.now();
  const frame = (now) => {
    if (!state.playing) return;
    const speed = Number($("speed").value);
    // Many steps may fall into one frame.
    for (const until = now + 8; performance.now() < until; ) {
      const { view } = state;
      if (view.next == null && view.cursor === view.moves) return keep(), pause();
      const span = Math.max((view.next ?? view.now) - view.now, 0);
      const takes = Math.min((span / speed) * 1000, LONGEST);
      if (now - since < takes) {
        state.clock = view.now + (span * (now - since)) / takes;
        drawWire(state.clock);
        break;
      }
      since += takes;
      state.clock = null;
      if (!forward()) return pause();
    }
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

function pause() {
  if (state.playing) keep();
  state.playing = false;
  state.clock = null;
  $("play").textContent = "Play";
  $("play").setAttribute("aria-pressed", "false");
  if (state.view) drawWire(state.view.now);
}

/** Keeps the run in the address. */
function keep() {
  const run = engine.ask({ ask: "save" });
  const text = JSON.stringify({ ...run, at: state.view.cursor, lesson: lesson.id });
  history.replaceState(null, "", `#${encodeURIComponent(text)}`);
  return true;
}

function open(text) {
  let at = null;
  let id = null;
  let run = { setup: {}, moves: [] };
  try {
    if (text) ({ at = null, lesson: id = null, ...run } = JSON.parse(decodeURIComponent(text)));
  } catch {
    $("problem").textContent = "The address of this page holds no run that it can read. This is a new one.";
    $("problem").hidden = false;
  }
  lesson.open(id);
  begin(run, at) || begin({ setup: {}, moves: [] }, null);
}

function begin(run, at) {
  pause();
  const before = state.setup;
  state.setup = run.setup ?? {};
  state.chosen = null;
  if (!change({ ask: "open", run, at })) return (state.setup = before), false;
  $("service").value = state.setup.service ?? "rc";
  $("congestion").checked = state.setup.congestion_control ?? false;
  $("early").checked = state.setup.early_retransmission ?? false;
  return true;
}

function another() {
  const setup = { ...state.setup, service: $("service").value, congestion_control: $("congestion").checked, early_retransmission: $("early").checked };
  if (begin({ setup, moves: [] }, null)) keep();
}

async function explain(file) {
  if (!file) return;
  const page = engine.explain(new Uint8Array(await file.arrayBuffer()));
  const good = page.startsWith("<!");
  $("report").hidden = !good;
  $("problem").hidden = good;
  if (good) $("report").srcdoc = page;
  else $("problem").textContent = `${file.name}: ${page}`;
}

$("step").addEventListener("click", step);
$("back").addEventListener("click", () => goTo(state.view.cursor - 1));
$("restart").addEventListener("click", () => goTo(0));
$("play").addEventListener("click", () => (state.playing ? pause() : play()));
$("moves").addEventListener("input", () => goTo(Number($("moves").value)));
$("link").addEventListener("click", async () => {
  keep();
  await navigator.clipboard?.writeText(location.href).catch(() => {});
  $("link").textContent = "It is in the address line";
  setTimeout(() => ($("link").textContent = "Copy link"), 2000);
});
for (const id of ["service", "congestion", "early"]) $(id).addEventListener("change", another);
$("file").addEventListener("change", (event) => explain(event.target.files[0]));
for (const [name, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
  addEventListener(name, (event) => {
    event.preventDefault();
    $("capture").classList.toggle("over", over);
    if (name === "drop") explain(event.dataTransfer.files[0]);
  });
}
addEventListener("hashchange", () => open(location.hash.slice(1)));
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea, summary, dialog *")) return;
  const does = { ArrowRight: step, ArrowLeft: () => goTo(Math.max(state.view.cursor - 1, 0)), Home: () => goTo(0), " ": () => (state.playing ? pause() : play()) };
  if (!does[event.key] || (event.key === " " && event.target.matches("button"))) return;
  event.preventDefault();
  does[event.key]();
});

open(location.hash.slice(1));
document.body.dataset.ready = Math.round(performance.now());
globalThis.playground = { engine, state };
