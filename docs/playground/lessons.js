// The lessons of the tour: each ends with something to do, and what was done is looked for in the run.

const completed = (state, side, pattern) =>
  state.events.some((event) => event.what === "completion" && event.side === side && pattern.test(event.text));
const lastOf = (state, test) => state.packets.filter(test).at(-1);

/** A lesson: `run` begins it, `done` says whether it has been done, `answer` is what the run says about the question. */
const LESSONS = [
  {
    id: "1-send", title: "SEND",
    text: `A message is cut into packets of the path MTU, 1024 bytes here, and each has a PSN. B needs a receive before the
      SEND arrives. One ACK at the end is enough: it stands for all packets before it.`,
    task: "Let 2500 bytes arrive at B: post a receive of 4096 bytes there, a SEND at A, and step until both have a completion.",
    question: "Which PSN does the ACK carry?",
    done: (state) => completed(state, 1, /Recv, Success/) && completed(state, 0, /Send, Success/),
    answer: (state) => lastOf(state, (packet) => packet.from === 1 && packet.answer === "ACK")?.psn,
    why: "It is the PSN of the last packet. An ACK says: everything up to here has arrived.",
  },
  {
    id: "2-write", title: "WRITE",
    text: `A WRITE names memory of the peer by address and key, and tells the peer's application nothing. With immediate data
      it takes a receive there, so that the application gets a completion.`,
    task: "Post a WRITE at A of which B's application is told. Look for it under “More”, and give B what it needs for that.",
    done: (state) => completed(state, 1, /RecvRdmaWithImm, Success/),
    why: "Immediate data takes a receive, whose buffer stays as it is: the bytes went where the WRITE said.",
  },
  {
    id: "3-read", title: "READ",
    text: `A READ is one request packet, and its responses may be many. They carry the PSNs that follow the request's own, so
      the requester has to leave room for them.`,
    task: "Post a READ of 3000 bytes at A and step until it is completed.",
    question: "How many PSNs did the READ use?",
    done: (state) => completed(state, 0, /RdmaRead, Success/),
    answer: (state) => new Set(state.packets.filter((packet) => /READ Response/i.test(packet.opcode)).map((packet) => packet.psn)).size,
    why: "One for each response. The next request of A begins behind them.",
  },
  {
    id: "4-atomic", title: "Atomics",
    text: `At byte 4096 of B there is the word 41. An atomic must happen once, whatever is lost. So a responder keeps the
      answers of the last ones, and repeats them to whoever asks again.`,
    task: "Post a fetch-and-add of 1 at A, drop the answer on its way, and step until A has its completion all the same.",
    question: "What is in the word then?",
    run: { setup: {}, moves: [{ do: "write", side: 1, offset: 4096, word: 41 }] },
    done: (state) => state.packets.some((packet) => /Atomic Ack/i.test(packet.opcode) && packet.fate === "lost") && completed(state, 0, /FetchAdd, Success/),
    answer: () => Number(BigInt(`0x${engine.ask({ ask: "memory", side: 1, offset: 4096, len: 8 }).hex.match(/../g).reverse().join("")}`)),
    why: "A asked twice, and B added once: the second answer is the one that B kept.",
  },
  {
    id: "5-loss", title: "Loss",
    text: `A responder that sees a gap asks for what is missing, with a NAK. It sees a gap when something comes behind it.`,
    task: "Post a receive at B and a SEND of 2500 bytes at A. Drop the packet after which no NAK can come, and step until it is sent again.",
    question: "How long does the resend take, in milliseconds?",
    done: (state) => {
      const lost = state.packets.find((packet) => packet.from === 0 && packet.fate === "lost");
      return lost && !state.packets.some((packet) => /NAK/.test(packet.answer ?? "")) && resend(state, lost);
    },
    answer: (state) => {
      const lost = state.packets.find((packet) => packet.from === 0 && packet.fate === "lost");
      return (resend(state, lost).sent - lost.sent) / 1e6;
    },
    near: 0.02,
    why: "Nothing came behind the last packet, so B could not know. Only A's own timer helped, the local ACK timeout: 4.096 µs × 2^14. Then A begins with the oldest packet that has not been acknowledged.",
  },
  {
    id: "6-rnr", title: "A receiver that is not ready",
    text: `A SEND for which no receive is posted is refused with an RNR NAK. It names a time to wait before the next try.`,
    task: "Post a SEND at A while B has no receive. Then post a receive at B, and step until the SEND is completed.",
    question: "How many milliseconds does the RNR NAK ask for?",
    done: (state) => state.packets.some((packet) => /RNR/.test(packet.answer ?? "")) && completed(state, 0, /Send, Success/),
    answer: (state) => parseFloat(lastOf(state, (packet) => /RNR/.test(packet.answer ?? ""))?.answer.match(/([\d.]+) ms/)?.[1]),
    near: 0.01,
    why: "B chose the time when its QP was set up; A waits at least that long.",
  },
  {
    id: "7-error", title: "A wrong key",
    text: `A responder that is asked for memory under a key that it has never issued answers with a NAK that ends the
      connection. Whatever the requester still had to do is flushed.`,
    task: "Post a WRITE with a wrong key at A, and another WRITE right behind it. Step until A has both completions.",
    done: (state) => completed(state, 0, /RemoteAccess/) && completed(state, 0, /Flushed/),
    why: "The first ends with the error, the second is flushed, and the QP of A is in ERR: it has to be set up anew.",
  },
  {
    id: "8-congestion", title: "Congestion",
    text: `A switch that is nearly full marks packets instead of dropping them. The receiver of a marked packet sends a
      congestion notification (CNP), and the sender slows down: that is DCQCN.`,
    task: "Post a WRITE at A, mark one of its packets on the way, and step until A has taken the CNP.",
    question: "At what rate may A send then, in Gbit/s?",
    run: { setup: { congestion_control: true }, moves: [] },
    done: (state) => state.events.some((event) => event.side === 0 && event.text === "slows down"),
    answer: (state) => (state.view.ends[0].rate * 8) / 1e9,
    near: 0.02,
    why: "The first CNP halves the rate of the link. Without further ones it rises again, step by step.",
  },
  {
    id: "9-windows", title: "Windows and keys",
    text: `The key of a region opens all of it, for as long as it is registered. A memory window is a key to a part, and it is given
      and taken while the connection goes on. B binds it with a work request; A gives it back with a SEND with Invalidate, or B takes
      it back itself.`,
    task: `At B, bind the window to 256 bytes from byte 4096 on. At A, WRITE 200 bytes there with the key of the peer's window
      (under “More”). Give it back: a receive at B, and a SEND with Invalidate at A. Then try the same WRITE again.`,
    question: "Which key does the SEND with Invalidate name? Its packet has it, in the header IETH.",
    done: (state) => {
      const at = (side, pattern) => state.events.findIndex((event) => event.what === "completion" && event.side === side && pattern.test(event.text));
      const [bound, written, failed] = [at(1, /BindMw, Success/), at(0, /RdmaWrite, Success/), at(0, /RdmaWrite, RemoteAccess/)];
      return bound >= 0 && bound < written && written < failed && Boolean(invalidating(state)) && state.view.sides[1].window.bound === false;
    },
    answer: (state) => Number(engine.ask({ ask: "packet", id: invalidating(state).id }).layers.find((layer) => layer.name === "ieth").fields[0].value),
    why: "It is the key of the window, and from then on it opens nothing: the second WRITE got a NAK, which ended the connection. The next bind gives the window another key, so that an old one stays useless.",
  },
  {
    id: "10-dcqcn", title: "DCQCN: two senders, one port",
    text: `A and C send to B through one port of a switch. While more than 20,000 bytes wait there, the switch marks packets, and B
      answers marked ones with CNPs. The plots show what congestion control allows both senders, and how the queue follows.`,
    task: "Post 40 WRITEs of 8192 bytes at A (“Times” is under “More”) and the same at C, and play until the rates have risen five times.",
    question: "How many microseconds lie between two rises of A's rate?",
    run: { setup: { sides: 3, congestion_control: true, mark_at: 20_000 }, moves: [] },
    done: (state) => rises(state, 0).length >= 5 && rises(state, 2).length >= 5,
    answer: (state) => {
      const times = rises(state, 0);
      return Math.min(...times.slice(1).map((at, number) => at - times[number])) / 1000;
    },
    near: 0.05,
    why: "Each CNP cuts the rate in half, at most once in 50 µs, as B sends no more of them. Without CNPs, a timer of 300 µs raises it: five times half of the way back to where it was before the last cut (fast recovery), then in steps of 40 Mbit/s, and later in larger ones.",
  },
  {
    id: "11-rdma-cm", title: "A connection by rdma_cm",
    text: `The QPs are in INIT: neither knows the other. The connection managers agree on numbers and PSNs by messages to QP 1. The
      client asks (REQ), the server agrees (REP), the client confirms (RTU). These are datagrams, and any of them can be lost.`,
    task: "Connect at A. Drop the REP on its way, and step until both ends are established. Then disconnect at either end, and step until both have been told.",
    question: "How many milliseconds after the lost REP does B send it again?",
    run: { setup: { connection_manager: true }, moves: [] },
    done: (state) => {
      const ended = (side) => state.events.some((event) => event.what === "connection" && event.side === side && /the connection has ended|the peer ends the connection/.test(event.text));
      const lost = lostReply(state);
      return Boolean(lost && resent(state, lost)) && ended(0) && ended(1);
    },
    answer: (state) => (resent(state, lostReply(state)).sent - lostReply(state).sent) / 1e6,
    near: 0.02,
    why: "A message that waits for an answer is sent again after 50 ms, then after 100 more, then 200, until the time that the REQ names for an answer, about 4 s. B has both ends' numbers since the REQ, so it does not begin anew: A's repeated REQ is one that it knows.",
  },
  {
    id: "12-incast", title: "Incast and PFC",
    text: `A and C send to B at the same time: 20 Gbit/s come to a port of 10. That is incast. The switch has 100,000 bytes of memory,
      and drops what does not fit. With priority flow control (PFC) it tells its neighbours to pause before that.`,
    task: `Post 20 WRITEs of 8192 bytes at A (“Times” is under “More”) and the same at C, and play until all are completed: packets are
      lost. Then switch PFC on, at the top, and do the same again.`,
    question: "For how many microseconds must A's port not send, the first time?",
    run: { setup: { sides: 3, network: "switch", buffer: 100_000 }, moves: [] },
    note: (state, kept) => (kept.lost ||= !state.setup.pfc && lostIn(state).length > 0),
    done: (state, kept) => kept.lost && state.setup.pfc && lostIn(state).length === 0 && successes(state).length >= 40,
    answer: (state) => {
      const own = state.pauses.filter(({ port }) => port === 0);
      return (own.find(({ paused }) => !paused).at - own.find(({ paused }) => paused).at) / 1000;
    },
    near: 0.05,
    why: "The switch pauses a neighbour whose share of the memory is full, and takes that back when there is room again. Nothing is lost, and all is done sooner. But the pause stops everything of that priority at A's port: packets to others, too, whose ports are idle.",
  },
  {
    id: "13-ecmp", title: "Two flows on one path",
    text: `Two spines lead from leaf 1 to leaf 2, each with 10 Gbit/s; B's link has 20. Leaf 1 chooses by a hash of addresses and ports
      (ECMP), so that the packets of a flow stay in order. The flows of A and C have the same spine, by chance. The other one carries ACKs at most.`,
    task: `Post 20 WRITEs of 8192 bytes at A and the same at C, and play until all are completed. Then choose another UDP source port for C,
      at the top, with which each flow has a spine of its own, and do the same again.`,
    question: "How many times as long did it take until the last completion when both had the same spine?",
    run: { setup: { sides: 3, network: "spines", buffer: 100_000, pfc: true, sports: [49_152, 49_152] }, moves: [] },
    note: (state, kept) => {
      if (successes(state).length >= 40 && spines(state).some((packets) => packets === 0)) kept.together = successes(state).at(-1).at;
    },
    done: (state, kept) => kept.together && successes(state).length >= 40 && spines(state).every((packets) => packets > 100),
    answer: (state, kept) => kept.together / successes(state).at(-1).at,
    near: 0.06,
    why: "A hash knows nothing of load: of two flows and two paths, every second pair collides. RDMA has few flows and large ones, so that this does not even out. The source port is what NICs and libraries can vary; other switches choose a path for each packet, and the receiver has to bear another order.",
  },
  {
    id: "14-link", title: "A link that fails",
    text: `A and C send to B, each by a spine of its own. When a link fails, leaf 1 goes on sending into it until its routes follow, which
      takes a while in a network. What is lost then has to be sent again, and both flows share what is left.`,
    task: `Post 40 WRITEs of 8192 bytes at A (“Times” is under “More”) and the same at C, and play for a while. Cut a link between leaf 1
      and a spine, under “Network”, and play until all are completed.`,
    question: "How many microseconds after the failure does leaf 1 use the other spine?",
    run: { setup: { sides: 3, network: "spines", buffer: 100_000, pfc: true, convergence: 100_000, sports: [49_152, 49_153] }, moves: [] },
    done: (state) => failure(state) && lostIn(state).length > 0 && successes(state).length >= 80,
    answer: (state) => (lostIn(state).at(-1).at - failure(state).at) / 1000,
    near: 0.05,
    why: "The last loss shows it. Then a packet gets through, B sees the gap and asks with one NAK, and everything from the first lost packet on is sent again, into a queue that now grows. Had the last packet been among the lost ones, nobody would have asked, and only the local ACK timeout of 67 ms would have helped.",
  },
  {
    id: "15-recovery", title: "Go-back-N and selective recovery",
    text: `RC goes back to a lost packet, and sends everything from there on again. These two NICs can do better. After a first loss
      each asks the other by a datagram to QP 1 whether it can, too. From then on the responder keeps what comes behind a gap, and
      says what has come by a bitmap instead of a NAK.`,
    task: "Post a WRITE of 8192 bytes at A, drop its second packet, and step until it is completed. Then do all of that once more.",
    question: "How many packets more did A send again the first time than the second time?",
    run: { setup: { selective_recovery: true }, moves: [] },
    done: (state) => ownLosses(state).length === 2 && successes(state).length >= 2 &&
      state.packets.some(({ opcode }) => opcode.includes("Selective Acknowledge")),
    answer: (state) => {
      const [first, second] = ownLosses(state).map(({ id }) => id);
      const again = repeats(state);
      return again.filter(({ id }) => id < second).length - again.filter(({ id }) => id > Math.max(first, second)).length;
    },
    why: "The first time, B drops what comes behind the gap, and A has to send it again. The second time B has kept it, and A sends one packet. The more is under way, the more that saves: with 100 Gbit/s and one packet lost in a hundred, go-back-N keeps 0.29 of the throughput, and this 0.98.",
  },
];

/** Data packets of A that were lost. */
const ownLosses = (state) => state.packets.filter(({ from, fate, message }) => from === 0 && fate === "lost" && !message);

/** Data packets that A has sent again. */
function repeats(state) {
  const own = state.packets.filter(({ from, message, copy_of }) => from === 0 && !message && copy_of == null);
  return own.filter(({ id, psn }) => own.some((other) => other.id < id && other.psn === psn));
}

const lostIn = (state) => state.events.filter(({ what, text }) => what === "wire" && text.includes("is lost at"));
const successes = (state) => state.events.filter(({ what, text }) => what === "completion" && text.includes("Success"));
const failure = (state) => state.events.find(({ what, text }) => what === "wire" && text.startsWith("the link leaf 1 to") && text.endsWith("fails"));
/** Packets that leaf 1 has sent to each spine. */
const spines = ({ view: { network } }) => network.links.flatMap(({ ends, packets }) => (network.nodes[ends[0]] === "leaf 1" ? [packets[0]] : []));

const invalidating = (state) => state.packets.find((packet) => packet.from === 0 && /with Invalidate/i.test(packet.opcode));
const lostReply = (state) => state.packets.find((packet) => packet.opcode === "REP" && packet.fate === "lost");
const resent = (state, lost) => state.packets.find((packet) => packet.id > lost.id && packet.opcode === lost.opcode && packet.copy_of == null);

/** When the rate of an end has risen. */
function rises(state, end) {
  const own = state.rates.filter((rate) => rate.end === end);
  return own.flatMap(({ at, rate }, number) => (number && (rate ?? Infinity) > (own[number - 1].rate ?? Infinity) ? [at] : []));
}

/** When a lost packet was sent again. */
function resend(state, lost) {
  return state.packets.find((packet) => packet.id > lost.id && packet.from === lost.from && packet.psn === lost.psn && packet.copy_of == null);
}

class LessonView {
  constructor(box, choice, begin) {
    this.box = box;
    this.choice = choice;
    this.lesson = null;
    choice.append(...LESSONS.map((lesson, at) => new Option(`${at + 1}. ${lesson.title}`, lesson.id)));
    choice.addEventListener("change", () => {
      this.open(choice.value);
      begin(this.lesson?.run ?? { setup: {}, moves: [] });
    });
  }

  get id() {
    return this.lesson?.id;
  }

  open(id) {
    this.lesson = LESSONS.find((lesson) => lesson.id === id) ?? null;
    this.choice.value = this.lesson?.id ?? "";
    this.box.hidden = !this.lesson;
    if (!this.lesson) return;
    const { title, text, task, question } = this.lesson;
    const result = make("p", "result");
    result.setAttribute("role", "status");
    // It is there when the task is done.
    const form = make("form", "");
    if (question) {
      form.append(make("p", "done", "Done. Now the question:"));
      const input = make("input");
      Object.assign(input, { type: "text", inputMode: "decimal", autocomplete: "off", name: "answer" });
      const label = make("label", "", `${question} `, input);
      form.append(label, " ", make("button", "", "Check"));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.check(input.value.trim().replace(",", "."));
      });
    }
    this.box.replaceChildren(make("h2", "", title), make("p", "", text), make("p", "task", task), form, result);
    this.given = null;
    // What earlier runs of this lesson have shown.
    this.kept = {};
    this.result = result;
    this.form = form;
  }

  /** Looks whether the lesson is solved, after each move. */
  look(state) {
    this.state = state;
    if (!this.lesson) return;
    this.lesson.note?.(state, this.kept);
    const done = Boolean(this.lesson.done(state, this.kept));
    this.form.hidden = !done;
    if (done && !this.lesson.question) this.say("solved", `Done. ${this.lesson.why}`);
    else if (!done || this.given == null) this.say("", "");
  }

  check(given) {
    const { answer, near = 0, why } = this.lesson;
    const right = answer(this.state, this.kept);
    const close = given !== "" && Math.abs(Number(given) - right) <= near * Math.abs(right);
    this.given = given;
    this.say(close ? "solved" : "wrong", close ? `Right. ${why}` : `Not ${given || "nothing"}. The answer is in what happened: look at the packets and the times.`);
  }

  say(name, text) {
    if (this.result.textContent === text) return;
    this.result.className = `result ${name}`;
    this.result.textContent = text;
  }
}
