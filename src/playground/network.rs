//! The network of a world: packets that leave, are meddled with, pass the switch, and arrive.

use std::time::Duration;

use softrnic_link::sim::{Flight, Meddling, Path};

use crate::packet::{Fate, Packet};
use crate::view::What;
use crate::world::World;

impl World {
    pub(crate) fn set_network(&mut self, mark: f64, loss: f64) -> Result<(), String> {
        if ![mark, loss].iter().all(|p| (0.0..=1.0).contains(p)) {
            return Err("a probability is from 0 to 1".into());
        }
        let delay = Duration::from_nanos(self.setup.delay);
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
        if !self.fabric.meddle(flight.number, what) {
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

    /// Moves what has arrived by now to the receivers.
    pub(crate) fn arrive(&mut self) {
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

    /// Lets the switch have what reaches it before anything else happens.
    pub(crate) fn pass_switch(&mut self) {
        let Some(mut switch) = self.switch.take() else { return };
        while let Some((reaches, packet)) = self.next_time().and_then(|next| switch.take(next)) {
            // Lost on the way to it, it takes nobody's place.
            let Ok(flight) = self.under_way(packet) else { continue };
            let Packet { to, length, psn, .. } = self.packets[packet];
            let passage = switch.pass(reaches, to, length);
            let at = passage.at.max(flight.at);
            self.fabric.meddle(flight.number, Meddling::ArriveAt(at));
            self.packets[packet].at = at;
            self.touched.push(packet);
            if passage.mark && self.fabric.meddle(flight.number, Meddling::Mark) {
                let text = format!("the switch marks psn {psn}: {} bytes wait", passage.queue);
                self.tell(None, What::Wire, Some(packet), text);
                if let Ok(marked) = self.under_way(packet) {
                    self.packets[packet].read(&marked.packet);
                }
            }
        }
        self.switch = Some(switch);
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
            if let Some(switch) = &mut self.switch {
                switch.expect(flight.at, id);
            }
            if original.is_none() {
                self.tell(Some(from), What::Sent, Some(id), text);
            }
        }
    }
}
