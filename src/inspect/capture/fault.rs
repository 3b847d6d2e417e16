//! What faults and modelled networks leave at the packets that they touch: the comments that `link/fault/notes.rs` and
//! `study/watch.rs` write.

/// A fault that SoftRNIC injected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InjectedFault<'a> {
    /// What it did to the packet: `dropped`, `duplicated`, `corrupted`, `reordered`, or `delayed`.
    pub done: &'a str,
    /// The number of the rule, from 1.
    pub rule: u32,
    /// The rule as `--fault` takes it.
    pub text: &'a str,
}

impl InjectedFault<'_> {
    /// The fault that a comment tells of. Anybody can have written it, so nothing but such a comment is one.
    pub fn parse(comment: &[u8]) -> Option<InjectedFault<'_>> {
        let printable = |byte: &u8| (b' '..=b'~').contains(byte);
        let comment = std::str::from_utf8(comment).ok().filter(|text| text.bytes().all(|b| printable(&b)))?;
        let (done, rule) = comment.strip_prefix("fault: ")?.split_once(" by rule ")?;
        let (number, text) = rule.split_once(", ")?;
        let known = ["dropped", "duplicated", "corrupted", "reordered", "delayed"].contains(&done);
        let rule = number.parse().ok().filter(|_| known && text.len() <= 200)?;
        Some(InjectedFault { done, rule, text })
    }
}

/// What a modelled network did to a packet at a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FabricNote<'a> {
    /// `marked`, or `dropped`.
    pub done: &'a str,
    /// The port: its node, and the node at the other end.
    pub port: &'a str,
    /// Why it was dropped.
    pub why: Option<&'a str>,
}

impl FabricNote<'_> {
    /// What a comment tells of. Anybody can have written it, so nothing but such a comment is one.
    pub fn parse(comment: &[u8]) -> Option<FabricNote<'_>> {
        let comment = std::str::from_utf8(comment)
            .ok()
            .filter(|text| text.bytes().all(|b| (b' '..=b'~').contains(&b)))?;
        let (done, place) = comment.strip_prefix("fabric: ")?.split_once(" at ")?;
        let (port, why) = place.split_once(", ").map_or((place, None), |(port, why)| (port, Some(why)));
        let known = matches!((done, why), ("marked", None) | ("dropped", Some(_)));
        (known && comment.len() <= 200).then_some(FabricNote { done, port, why })
    }

    /// Whether the packet went no further. It was recorded before, when it left its port, if it did.
    pub fn is_loss(&self) -> bool {
        self.done == "dropped"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_network_writes_is_its_note() {
        let note = FabricNote::parse(b"fabric: dropped at leaf0-h1, the switch has no room");
        let why = Some("the switch has no room");
        assert_eq!(note, Some(FabricNote { done: "dropped", port: "leaf0-h1", why }));
        let note = FabricNote::parse(b"fabric: marked at s0-h1");
        assert_eq!(note, Some(FabricNote { done: "marked", port: "s0-h1", why: None }));
        for other in [
            &b"fabric: eaten at s0-h1"[..],
            b"fabric: dropped at s0-h1",
            b"fabric: marked at s0\x1b",
            b"marked at s0",
        ] {
            assert_eq!(FabricNote::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn only_our_own_comments_are_faults() {
        let fault = InjectedFault::parse(b"fault: dropped by rule 2, drop:op=rc_acknowledge:nth=3");
        let text = "drop:op=rc_acknowledge:nth=3";
        assert_eq!(fault, Some(InjectedFault { done: "dropped", rule: 2, text }));
        for other in [
            &b"a remark"[..],
            b"",
            b"fault: eaten by rule 1, drop=1%",
            b"fault: dropped by rule x, drop=1%",
            b"fault: dropped by rule 1, \x1b[2J",
            b"fault: dropped by rule 1, \xFF",
        ] {
            assert_eq!(InjectedFault::parse(other), None, "{other:?}");
        }
    }
}
