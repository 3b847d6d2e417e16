// Puts the parts together: time, actions, and the address that carries a run.

const engine = await loadEngine(WASM);
const state = { packets: [], events: [], rates: [], queues: [], pauses: [], flying: new Set(), changed: new Set(), chosen: null, view: null, setup: {}, playing: false };

const ladder = new Ladder($("ladder"), choose);
const wire = new Wire($("wire"), choose);
const plot = new Plot($("rates"));
const network = new NetworkView($("network-view"), act);
const packetView = new PacketView($("packet"), engine, act);
const sides = [...document.querySelectorAll(".side")].map((box) => new SideView(box, Number(box.dataset.side), engine, act));

const lesson = new LessonView($("lesson"), $("choice"), (run) => begin(run, null) && keep());

/** Asks for a change and shows it; what is wrong with it is said to the reader. */
function change(request) {
  return ask(request) && draw();
}

function ask(request) {
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

/** Takes in what has changed. Many steps may be taken before they are drawn. */
function take(view) {
  state.fresh ||= view.fresh;
  if (view.fresh) (state.packets = []), (state.events = []), (state.rates = []), (state.queues = []), (state.pauses = []), state.flying.clear();
  for (const packet of view.packets) {
    state.packets[packet.id] = packet;
    state.changed.add(packet.id);
    if (packet.fate === "flying") state.flying.add(packet.id);
    else state.flying.delete(packet.id);
  }
  state.events.push(...view.events);
  state.rates.push(...view.rates);
  state.queues.push(...view.queues);
  state.pauses.push(...view.pauses);
  view.managed = Boolean(state.setup.connection_manager);
  state.view = view;
  if (state.chosen >= state.packets.length) state.chosen = null;
}

function draw() {
  const { view, fresh, changed } = state;
  wire.layOut(view.ends, state.setup.delay ?? 5000);
  ladder.lines(view.sides.length);
  document.querySelector("main").classList.toggle("three", view.sides.length === 3);
  ladder.set(state.packets, fresh ? state.packets.keys() : changed);
  drawWire(view.now);
  sides.forEach((side) => side.set(view));
  plot.draw(state.rates, view, state.setup.bandwidth ?? 10_000_000_000);
  network.draw(state);
  if (state.chosen == null || fresh || changed.has(state.chosen)) packetView.show(state.chosen);
  drawEvents(fresh);
  lesson.look(state);
  $("moves").max = view.moves;
  $("moves").value = view.cursor;
  $("cursor").textContent = `${view.cursor} of ${view.moves}`;
  $("back").disabled = $("restart").disabled = view.cursor === 0;
  $("step").disabled = view.next == null && view.cursor === view.moves;
  state.fresh = false;
  changed.clear();
  return true;
}

function drawWire(clock) {
  wire.draw(state.packets, state.flying, clock, state.chosen);
  $("clock").textContent = duration(Math.round(clock));
  sides.forEach((side) => side.tick(clock));
}

/** The last events; all are there when the page goes back. */
const EVENTS = 200;
let drawn = 0;
function drawEvents(fresh) {
  const box = $("events");
  if (fresh) (drawn = 0), box.replaceChildren();
  if (drawn === state.events.length) return;
  box.append(...state.events.slice(Math.max(drawn, state.events.length - EVENTS)).map((event) => {
    const text = make("span", "", event.text);
    if (event.rule) {
      const rule = make("button", "", event.rule);
      rule.addEventListener("click", () => showRule(event.rule, event.says));
      text.append(" ", rule);
    }
    return make("li", event.what, make("time", "", duration(event.at)), make("b", "", event.side == null ? "" : NAMES[event.side]), text);
  }));
  while (box.childElementCount > EVENTS) box.firstElementChild.remove();
  drawn = state.events.length;
  box.scrollTop = box.scrollHeight;
}

function choose(id) {
  state.chosen = id;
  ladder.select(id);
  packetView.show(id);
  drawWire(state.clock ?? state.view.now);
}

function showRule(rule, says) {
  // The site of the documentation has the page of all rules.
  const page = document.body.dataset.conformance;
  const link = make("a", "", page ? `${rule} among all rules` : "");
  link.href = `${page}#:~:text=${encodeURIComponent(rule).replaceAll("-", "%2D")}`;
  $("rule-title").textContent = rule;
  const { code, tests } = RULES[rule];
  const part = (title, names) => [make("h3", "", title), make("ul", "", ...names.map((name) => make("li", "", name)))];
  const files = make("details", "", make("summary", "", "Where SoftRNIC follows it"), ...part("Code", code), ...part("Tests that check it", tests));
  $("rule").querySelector("div").replaceChildren(make("p", "", says), files, ...(page ? [link] : []));
  $("rule").showModal();
}

function step() {
  pause();
  if (change({ ask: "forward" })) keep();
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
    // Many steps may fall into one frame. They are drawn once.
    let steps = 0;
    for (const until = now + 8; performance.now() < until; ) {
      const { view } = state;
      if (view.next == null && view.cursor === view.moves) return draw(), pause();
      const span = Math.max((view.next ?? view.now) - view.now, 0);
      const takes = Math.min((span / speed) * 1000, LONGEST);
      if (now - since < takes) {
        state.clock = view.now + (span * (now - since)) / takes;
        break;
      }
      since += takes;
      state.clock = null;
      steps++;
      if (!ask({ ask: "forward" })) return draw(), pause();
    }
    if (steps) draw();
    drawWire(state.clock ?? state.view.now);
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
  $("sides").value = state.setup.sides ?? 2;
  $("manager").checked = state.setup.connection_manager ?? false;
  $("network").value = between(state.setup);
  $("marks").checked = Boolean(state.setup.mark_at);
  $("pfc").checked = state.setup.pfc ?? false;
  $("sport").value = state.setup.sports?.[1] ?? SPORT;
  $("sport").parentElement.hidden = between(state.setup) !== "spines" || state.setup.sides !== 3;
  $("congestion").checked = state.setup.congestion_control ?? false;
  $("early").checked = state.setup.early_retransmission ?? false;
  $("selective").checked = state.setup.selective_recovery ?? false;
  return true;
}

/** What is between the NICs. Marks need a switch, as runs say that are older than the choice. */
function between({ network = "cable", mark_at = 0 }) {
  return network === "cable" && mark_at ? "switch" : network;
}

/** Bytes that wait at a port of a switch when it begins to mark. */
const MARK_AT = 20_000;
/** Bytes of a switch's memory. */
const BUFFER = 100_000;
const SPORT = 49_152;
function another() {
  const chosen = $("network").value;
  // Marks and pauses need a switch; who asks for one gets it.
  const wanted = ($("marks").checked && !state.setup.mark_at) || ($("pfc").checked && !state.setup.pfc);
  const network = chosen === "cable" && wanted ? "switch" : chosen;
  const switched = network !== "cable";
  const setup = { ...state.setup, sides: Number($("sides").value), service: $("service").value, connection_manager: $("manager").checked,
    congestion_control: $("congestion").checked, network, buffer: switched ? state.setup.buffer || BUFFER : 0,
    mark_at: switched && $("marks").checked ? state.setup.mark_at || MARK_AT : 0, pfc: switched && $("pfc").checked,
    sports: [SPORT, Number($("sport").value)], early_retransmission: $("early").checked, selective_recovery: $("selective").checked };
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
for (const id of ["sides", "service", "manager", "congestion", "network", "marks", "pfc", "sport", "early", "selective"]) $(id).addEventListener("change", another);
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
