//! How a link that wraps another hands calls on to it.

/// Writes the methods of [`Link`](crate::Link) that go to another link as they are, inside an `impl Link for`:
///
/// ```ignore
/// delegate_link!(self => self.inner; reserved show descriptor);
/// ```
///
/// A wrapper names all methods that it does not write itself. One that it forgets and that has a default says what a link
/// without that ability says.
#[macro_export]
macro_rules! delegate_link {
    ($self:ident => $to:expr; $($method:ident)+) => {
        $($crate::delegate_link!(@$method $self, $to);)+
    };
    (@capabilities $self:ident, $to:expr) => {
        fn capabilities(&$self) -> &$crate::Capabilities { $to.capabilities() }
    };
    (@reserve $self:ident, $to:expr) => {
        fn reserve(
            &mut $self,
            now: $crate::Time,
            flow: &$crate::Flow,
            len: usize,
        ) -> Result<$crate::TxSlot<'_>, $crate::TxError> {
            $to.reserve(now, flow, len)
        }
    };
    (@reserved $self:ident, $to:expr) => {
        fn reserved(&$self) -> &[u8] { $to.reserved() }
    };
    (@commit $self:ident, $to:expr) => {
        fn commit(&mut $self, now: $crate::Time) { $to.commit(now); }
    };
    (@show $self:ident, $to:expr) => {
        fn show(&mut $self) { $to.show(); }
    };
    (@flush $self:ident, $to:expr) => {
        fn flush(&mut $self, now: $crate::Time) { $to.flush(now); }
    };
    (@is_blocked $self:ident, $to:expr) => {
        fn is_blocked(&$self) -> bool { $to.is_blocked() }
    };
    (@receive $self:ident, $to:expr) => {
        fn receive(
            &mut $self,
            now: $crate::Time,
            budget: usize,
            sink: &mut dyn FnMut($crate::Datagram<'_>),
        ) -> $crate::Overrun {
            $to.receive(now, budget, sink)
        }
    };
    (@receives_in_memory $self:ident, $to:expr) => {
        fn receives_in_memory(&$self, now: $crate::Time) -> bool { $to.receives_in_memory(now) }
    };
    (@sends_in_memory $self:ident, $to:expr) => {
        fn sends_in_memory(&mut $self, now: $crate::Time, flow: &$crate::Flow) -> bool {
            $to.sends_in_memory(now, flow)
        }
    };
    (@is_quiet $self:ident, $to:expr) => {
        fn is_quiet(&mut $self, now: $crate::Time) -> bool { $to.is_quiet(now) }
    };
    (@has_room $self:ident, $to:expr) => {
        fn has_room(&mut $self, now: $crate::Time, flow: &$crate::Flow, len: usize) -> bool {
            $to.has_room(now, flow, len)
        }
    };
    (@poll_timeout $self:ident, $to:expr) => {
        fn poll_timeout(&$self) -> Option<$crate::Time> { $to.poll_timeout() }
    };
    (@descriptor $self:ident, $to:expr) => {
        fn descriptor(&$self) -> Option<$crate::RawFd> { $to.descriptor() }
    };
    (@watch $self:ident, $to:expr) => {
        fn watch(&mut $self, sleeper: $crate::Sleeper) -> bool { $to.watch(sleeper) }
    };
    (@caller_wake_fd $self:ident, $to:expr) => {
        fn caller_wake_fd(&$self) -> Option<$crate::RawFd> { $to.caller_wake_fd() }
    };
    (@join $self:ident, $to:expr) => {
        fn join(&mut $self, group: ::std::net::IpAddr) -> ::std::io::Result<()> { $to.join(group) }
    };
    (@leave $self:ident, $to:expr) => {
        fn leave(&mut $self, group: ::std::net::IpAddr) -> ::std::io::Result<()> { $to.leave(group) }
    };
    (@counters $self:ident, $to:expr) => {
        fn counters(&$self) -> $crate::LinkCounters { $to.counters() }
    };
    (@reaches $self:ident, $to:expr) => {
        fn reaches(&$self) -> Vec<$crate::Reach> { $to.reaches() }
    };
    (@sharing $self:ident, $to:expr) => {
        fn sharing(&mut $self) -> Option<&mut dyn $crate::Sharing> { $to.sharing() }
    };
    (@carrier $self:ident, $to:expr) => {
        fn carrier(&mut $self) -> Option<$crate::Carrier> { $to.carrier() }
    };
    (@faults $self:ident, $to:expr) => {
        fn faults(&mut $self) -> Option<&mut dyn $crate::Faults> { $to.faults() }
    };
    (@readdress $self:ident, $to:expr) => {
        fn readdress(&mut $self, addresses: &[::std::net::IpAddr]) { $to.readdress(addresses); }
    };
    (@packet_memory $self:ident, $to:expr) => {
        fn packet_memory(&$self) -> Option<$crate::FrameAudit> { $to.packet_memory() }
    };
    (@stop_segmenting $self:ident, $to:expr) => {
        fn stop_segmenting(&mut $self) { $to.stop_segmenting(); }
    };
    (@keep_icrcs $self:ident, $to:expr) => {
        fn keep_icrcs(&mut $self) { $to.keep_icrcs(); }
    };
    (@leave_payloads $self:ident, $to:expr) => {
        fn leave_payloads(&mut $self) { $to.leave_payloads(); }
    };
    (@show_headers $self:ident, $to:expr) => {
        fn show_headers(&mut $self) { $to.show_headers(); }
    };
}
