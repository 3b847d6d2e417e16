//! Devices of this process to look at.

use std::time::{Duration, Instant};

use softrnic_nic::verbs::{
    AddressVector, Context, Cq, DeviceSpec, Mtu, Psn, Qp, QpOptions, Status, WorkRequest,
};
use std::sync::Arc;

/// One end of a connection.
pub struct End {
    pub context: Context,
    pub qp: Arc<Qp>,
    cq: Arc<Cq>,
}

/// Two devices with names of the test's own, whose QPs are connected.
pub fn pair(test: &str) -> [End; 2] {
    let ends = ["a", "b"].map(|side| {
        let spec = DeviceSpec { name: format!("{test}_{side}"), ..DeviceSpec::default() };
        let context = Context::open(&spec).expect("a device");
        let pd = context.alloc_pd().expect("a PD");
        let cq = context.create_cq(64, None).expect("a CQ");
        let qp = pd.create_rc_qp(&cq, &cq, QpOptions::default()).expect("a QP");
        End { context, qp, cq }
    });
    for (own, other, psns) in [(0, 1, [10, 20]), (1, 0, [20, 10])] {
        let to = AddressVector::to(ends[other].context.address());
        let [send, receive] = psns.map(Psn::new);
        ends[own].qp.connect(to, ends[other].qp.qpn(), Mtu::B1024, send, receive).expect("connected");
    }
    ends
}

/// Sends some messages from the first end to the second.
pub fn send([from, to]: &[End; 2], messages: u64) {
    for id in 0..messages {
        to.qp.post_recv(id, &[]).expect("posted");
        from.qp.post(WorkRequest::send().id(id)).expect("posted");
        for end in [to, from] {
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut status = None;
            while status.is_none() {
                assert!(Instant::now() < deadline, "no completion");
                end.cq.poll_with(1, |cqe| status = Some(cqe.status));
            }
            assert_eq!(status, Some(Status::Success));
        }
    }
    // What is shown may be this old: other tests of this user look as well.
    std::thread::sleep(Duration::from_millis(100));
}

/// This process, for `--pid`.
pub fn own_pid() -> String {
    std::process::id().to_string()
}
