//! What faults leave at the packets that they touch: the comments that `link/fault/notes.rs` writes.

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

#[cfg(test)]
mod tests {
    use super::*;

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
