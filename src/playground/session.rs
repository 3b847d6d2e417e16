//! A run that can go back: a setup and a list of moves.

use serde::{Deserialize, Serialize};

use crate::action::{Action, Move, Setup};
use crate::packet::layers;
use crate::view::{Told, View};
use crate::world::World;

/// Moves that a session may have.
const MAX_MOVES: usize = 50_000;

/// A run as a link carries it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    /// The setup.
    pub setup: Setup,
    /// The moves.
    pub moves: Vec<Move>,
}

/// What a page asks for.
#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Begins another run, at its move `at`, or at its end.
    Open {
        /// The run.
        run: Run,
        /// How many of its moves have been made.
        at: Option<usize>,
    },
    /// Does something, and forgets the moves that came after this one.
    Act {
        /// What.
        action: Action,
    },
    /// Makes the next move: the one that was made before, or else a step.
    Forward,
    /// Goes to where so many moves have been made.
    Goto {
        /// How many.
        at: usize,
    },
    /// The run, to be kept.
    Save,
    /// The layers of a packet.
    Packet {
        /// Which one.
        id: usize,
    },
    /// Bytes of an application's memory.
    Memory {
        /// Which NIC's.
        side: usize,
        /// From where.
        offset: usize,
        /// How many.
        len: usize,
    },
}

/// See the [module](self).
#[derive(Default)]
pub struct Session {
    setup: Setup,
    /// `None` is a step.
    moves: Vec<Option<Action>>,
    made: usize,
    world: Option<World>,
    told: Told,
}

impl Session {
    /// Answers a request. Both are JSON.
    pub fn call(&mut self, request: &[u8]) -> String {
        let answer = serde_json::from_slice(request)
            .map_err(|error| format!("this is no request: {error}"))
            .and_then(|request| self.answer(request));
        answer.unwrap_or_else(|error| serde_json::json!({ "error": error }).to_string())
    }

    fn answer(&mut self, request: Request) -> Result<String, String> {
        match request {
            Request::Open { run, at } => self.open(run, at),
            Request::Act { action } => {
                if self.made >= MAX_MOVES {
                    return Err(format!("a run has at most {MAX_MOVES} moves: begin another one"));
                }
                self.world()?.act(&action)?;
                self.moves.truncate(self.made);
                self.moves.push(Some(action));
                self.made += 1;
                self.view(false)
            }
            Request::Forward => {
                match self.moves.get(self.made).cloned() {
                    Some(known) => make(self.world()?, &known)?,
                    None if self.made >= MAX_MOVES => {
                        return Err(format!("a run has at most {MAX_MOVES} moves: begin another one"));
                    }
                    // Nothing will happen by itself.
                    None if !self.world()?.step() => return self.view(false),
                    None => self.moves.push(None),
                }
                self.made += 1;
                self.view(false)
            }
            Request::Goto { at } => {
                self.replay(at.min(self.moves.len()))?;
                self.view(true)
            }
            Request::Save => json(&self.run()),
            Request::Packet { id } => {
                let packets = &self.world()?.packets;
                let packet = packets.get(id).ok_or_else(|| format!("there is no packet {id}"))?;
                let hex: String = packet.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                json(&serde_json::json!({ "packet": packet, "layers": layers(&packet.bytes), "hex": hex }))
            }
            Request::Memory { side, offset, len } => {
                let sides = &self.world()?.sides;
                let side = sides.get(side).ok_or_else(|| format!("there is no NIC {side}"))?;
                let bytes = side.memory.read(offset, len.min(side.memory.len()));
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                json(&serde_json::json!({ "hex": hex }))
            }
        }
    }

    /// What has been done so far and what came after it, if this has gone back.
    pub fn run(&self) -> Run {
        let mut moves = Vec::new();
        for known in &self.moves {
            match (known, moves.last_mut()) {
                (Some(action), _) => moves.push(Move::Do(action.clone())),
                (None, Some(Move::Steps(count))) => *count += 1,
                (None, _) => moves.push(Move::Steps(1)),
            }
        }
        Run { setup: self.setup.clone(), moves }
    }

    fn open(&mut self, run: Run, at: Option<usize>) -> Result<String, String> {
        let mut moves = Vec::new();
        for one in run.moves {
            let count = if let Move::Steps(count) = one { count as usize } else { 1 };
            if moves.len() + count > MAX_MOVES {
                return Err(format!("a run has at most {MAX_MOVES} moves"));
            }
            match one {
                Move::Steps(_) => moves.extend(std::iter::repeat_n(None, count)),
                Move::Do(action) => moves.push(Some(action)),
            }
        }
        let at = at.unwrap_or(moves.len()).min(moves.len());
        let mut fresh = Session { setup: run.setup, moves, ..Session::default() };
        fresh.replay(at)?;
        *self = fresh;
        self.view(true)
    }

    /// Makes the first `count` moves again.
    fn replay(&mut self, count: usize) -> Result<(), String> {
        let mut world = World::new(&self.setup)?;
        for known in &self.moves[..count] {
            make(&mut world, known)?;
        }
        world.touched.clear();
        (self.world, self.made, self.told) = (Some(world), count, Told::default());
        Ok(())
    }

    fn world(&mut self) -> Result<&mut World, String> {
        self.world.as_mut().ok_or_else(|| "open a run first".into())
    }

    fn view(&mut self, fresh: bool) -> Result<String, String> {
        let (made, moves, told) =
            (self.made, self.moves.len(), if fresh { Told::default() } else { self.told });
        let world = self.world()?;
        let mut view = View::new(world, told, fresh);
        (view.cursor, view.moves) = (made, moves);
        let answer = json(&view)?;
        self.told = Told::all(world);
        Ok(answer)
    }
}

fn make(world: &mut World, known: &Option<Action>) -> Result<(), String> {
    match known {
        Some(action) => world.act(action),
        None => {
            world.step();
            Ok(())
        }
    }
}

fn json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}
