//! The network of a world: packets that leave, are meddled with, pass the switch, and arrive.

use std::time::Duration;

use softrnic_fabric::DropReason;
use softrnic_link::sim::{Flight, Meddling, Path};
use softrnic_wire::Time;

use crate::packet::{Fate, Packet};
use crate::switches::{Becomes, News};
use crate::view::What;
use crate::world::World;

/// Packets that a switch has are due then: never.
pub(crate) const HELD: Time = Time::from_nanos(1 << 60);

impl World {
    pub(crate) fn set_network(&mut self, mark: f64, loss: f64) -> Result<(), String> {
        if ![mark, loss].iter().all(|p| (0.0..=1.0).contains(p)) {
            return Err("a probability is from 0 to 1".into());
        }
        let delay = match self.switches {
            None => Duration::from_nanos(self.setup.delay),
            Some(_) => Duration::from_nanos(HELD.as_nanos()),
        };
        self.fabric.set_default_path(Path { delay, mark, loss, ..Path::default() });
        Ok(())
    }

    pub(crate) fn under_way(&self, packet: usize) -> Result<Flight, String> {
        let known = self.packets.get(packet).ok_or_else(|| format!("there is no packet {packet}"))?;
        let flights = self.fabric.flights();
        let flight = flights.into_iter().find(|flight| flight.number == known.number);
        flight.ok_or_else(|| format!("packet {packet} is no longer under way"))
    }

    pub(crate) fn meddle(&mut self, packet: usize, what: Meddling, word: &'static str) -> Result<(), String> {
        let flight = self.under_way(packet)?;
        if !self.meddle_held(packet, what) && !self.fabric.meddle(flight.number, what) {
            return Err(match what {
                Meddling::Mark => {
                    format!("packet {packet} is not ECN-capable: switch congestion control on")
                }
                _ => format!("packet {packet} has no such bit"),
            });
        }
        let (now, known) = (self.now, &mut self.packets[packet]);
        known.done.push(word);
        match what {
            Meddling::Lose => (known.fate, known.at) = (Fate::Lost, now),
            Meddling::ArriveAt(at) => known.at = at,
            _ => {}
        }
        if what == Meddling::Lose {
            self.flying.remove(&flight.number);
        } else if let Some(changed) =
            self.fabric.flights().into_iter().find(|changed| changed.number == flight.number)
        {
            known.read(&changed.packet);
        }
        self.touched.push(packet);
        let text = format!("{}, psn {}, {word}", self.packets[packet].opcode, self.packets[packet].psn);
        self.tell(None, What::Wire, Some(packet), text);
        self.see_departures(Some(packet).filter(|_| what == Meddling::Duplicate));
        Ok(())
    }

    /// Does what only the switches can do to a packet that they have.
    fn meddle_held(&mut self, packet: usize, what: Meddling) -> bool {
        let Some(switches) = self.switches.as_mut().filter(|switches| switches.carries(packet)) else {
            return false;
        };
        match what {
            Meddling::ArriveAt(at) => {
                switches.delay(packet, Duration::from_nanos(at.nanos_since(self.packets[packet].at)));
                true
            }
            Meddling::Lose => {
                switches.lose(packet);
                false
            }
            _ => false,
        }
    }

    /// When a packet under way arrives, as far as that is known.
    pub(crate) fn arrival(&self, packet: usize) -> Result<Time, String> {
        self.under_way(packet)
            .map(|flight| if flight.at < HELD { flight.at } else { self.packets[packet].at })
    }

    /// Moves what has arrived by now to the receivers.
    pub(crate) fn arrive(&mut self) {
        self.pass_switches();
        for flight in self.fabric.flights().into_iter().filter(|flight| flight.at <= self.now) {
            let side = self.sides.iter_mut().find(|side| side.address == flight.to);
            if let (Some(side), Some(packet)) = (side, self.flying.remove(&flight.number)) {
                side.inbox.push_back(packet);
                self.packets[packet].fate = Fate::Arrived;
                self.touched.push(packet);
            }
        }
        self.fabric.advance(self.now);
    }

    /// Lets the switches do what they do until now.
    pub(crate) fn pass_switches(&mut self) {
        let Some(switches) = &mut self.switches else { return };
        let news = switches.run_until(self.now);
        self.hear(news);
    }

    pub(crate) fn change_link(&mut self, link: usize, up: bool) -> Result<(), String> {
        let switches = self.switches.as_mut().ok_or("there is no switch")?;
        let (name, news) = switches.change(self.now, link, up)?;
        let word = if up { "works again" } else { "fails" };
        self.tell(None, What::Wire, None, format!("the link {name} {word}"));
        self.hear(news);
        Ok(())
    }

    fn hear(&mut self, news: Vec<News>) {
        if let Some(switches) = &mut self.switches {
            self.queues.append(&mut switches.queues);
            self.pauses.append(&mut switches.pauses);
        }
        for News { at, packet, what } in news {
            let known = &mut self.packets[packet];
            let (number, psn) = (known.number, known.psn);
            self.touched.push(packet);
            match what {
                Becomes::Delivered(delay) => {
                    known.at = at + delay;
                    self.fabric.meddle(number, Meddling::ArriveAt(at + delay));
                }
                Becomes::Held(time) => known.at += time,
                Becomes::Marked(by, queue) => {
                    self.fabric.meddle(number, Meddling::Mark);
                    if let Ok(marked) = self.under_way(packet) {
                        self.packets[packet].read(&marked.packet);
                    }
                    let text = format!("{by} marks psn {psn}: {queue} bytes wait");
                    self.tell_at(at, None, What::Wire, Some(packet), text);
                }
                Becomes::Lost(by, reason) => {
                    (known.fate, known.at) = (Fate::Lost, at);
                    self.flying.remove(&number);
                    self.fabric.meddle(number, Meddling::Lose);
                    let text = format!("psn {psn} is lost at {by}: {}", meaning(reason));
                    self.tell_at(at, None, What::Wire, Some(packet), text);
                }
            }
        }
    }

    /// Notes what has left since this was last called; it is a copy of `original`, if there is one.
    pub(crate) fn see_departures(&mut self, original: Option<usize>) {
        for flight in self.fabric.flights() {
            if self.flying.contains_key(&flight.number) {
                continue;
            }
            let place = |address| self.sides.iter().position(|side| side.address == address);
            let (Some(from), Some(to)) = (place(flight.from), place(flight.to)) else { continue };
            let id = self.packets.len();
            let packet = Packet::new(id, &flight, (from, to), self.now, original);
            self.flying.insert(flight.number, id);
            self.touched.push(id);
            let text = format!("sent {}, psn {}{}", packet.opcode, packet.psn, packet.note());
            self.packets.push(packet);
            if let Some(switches) = self.switches.as_mut().filter(|_| flight.at >= HELD) {
                let known = &mut self.packets[id];
                known.at = switches.send(self.now, known, [flight.from, flight.to]);
            }
            if original.is_none() {
                self.tell(Some(from), What::Sent, Some(id), text);
            }
        }
    }
}

fn meaning(reason: DropReason) -> &'static str {
    match reason {
        DropReason::NoRoom => "no room",
        DropReason::NoRoute => "no path is known",
        DropReason::LinkDown => "the link is down",
        _ => "it is damaged",
    }
}
