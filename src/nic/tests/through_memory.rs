//! Messages between two NICs that share memory: long payloads are copied where the peer has written them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use softrnic_nic::verbs::{
    Access, AddressVector, Context, Cq, DeviceSpec, Mr, Mtu, Psn, Qp, QpOptions, Status, WorkRequest,
};

const LONGEST: usize = 70_000;

struct End {
    context: Context,
    memory: Mr,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
}

impl End {
    fn open(device: &str) -> End {
        let spec: DeviceSpec = device.parse().expect("a device");
        let context = Context::open(&spec).expect("opens");
        let pd = context.alloc_pd().expect("a PD");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = pd.register(vec![0; LONGEST], access).expect("registered");
        let cq = context.create_cq(16, None).expect("a CQ");
        let qp = pd.create_rc_qp(&cq, &cq, QpOptions::default()).expect("a QP");
        End { context, memory, cq, qp }
    }

    fn connect(&self, other: &End) {
        let address: IpAddr = other.context.address();
        let to = AddressVector::to(address);
        self.qp.connect(to, other.qp.qpn(), Mtu::B4096, Psn::ZERO, Psn::ZERO).expect("connected");
    }

    fn complete(&self) {
        let (begun, mut found) = (Instant::now(), None);
        while found.is_none() {
            self.cq.poll_with(1, |cqe| found = Some(cqe.status));
            assert!(begun.elapsed() < Duration::from_secs(30), "no completion");
        }
        assert_eq!(found, Some(Status::Success));
    }

    fn fill(&self, seed: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..LONGEST).map(|at| (at * 7 + at / 251 + seed) as u8).collect();
        self.memory.write(0, &bytes).expect("in bounds");
        bytes
    }

    fn is(&self, bytes: &[u8], what: &str) {
        let mut found = vec![0; bytes.len()];
        self.memory.read(0, &mut found).expect("in bounds");
        let wrong = (0..bytes.len()).find(|&at| found[at] != bytes[at]);
        assert_eq!(wrong, None, "{what}");
    }
}

fn move_everything(left: &End, right: &End, what: &str) {
    for (round, len) in
        [1, 100, 1000, 1023, 1024, 1500, 4095, 4096, 4097, 5120, 65_536, 65_539].into_iter().enumerate()
    {
        let at = || (right.memory.addr(), right.memory.rkey());
        let sent = left.fill(round);
        let (va, rkey) = at();
        left.qp.post(WorkRequest::write(va, rkey).sge(left.memory.sge(0, len))).expect("posted");
        left.complete();
        right.is(&sent[..len], &format!("{what}: WRITE of {len}"));

        let sent = left.fill(round + 100);
        // In two pieces, so that a packet is scattered.
        let pieces = [right.memory.sge(0, len / 3), right.memory.sge(len / 3, len - len / 3)];
        right.qp.post_recv(1, &pieces).expect("posted");
        left.qp.post(WorkRequest::send().sge(left.memory.sge(0, len))).expect("posted");
        left.complete();
        right.complete();
        right.is(&sent[..len], &format!("{what}: SEND of {len}"));

        let there = right.fill(round + 200);
        let (va, rkey) = at();
        left.qp.post(WorkRequest::read(va, rkey).sge(left.memory.sge(0, len))).expect("posted");
        left.complete();
        left.is(&there[..len], &format!("{what}: READ of {len}"));
    }
}

#[test]
fn messages_of_all_lengths_arrive_whole() {
    let pid = std::process::id();
    for options in ["", "&icrc=always", "&copies=safe", "&recovery=gbn"] {
        let [left, right] =
            ["left", "right"].map(|name| End::open(&format!("{name}{pid}=udp?shm=on{options}")));
        left.connect(&right);
        right.connect(&left);
        move_everything(&left, &right, options);
        // All but the first few.
        let counters = left.context.link_counters().expect("a device");
        assert!(counters.shm_rx_datagrams > counters.rx_datagrams / 2, "{counters:?}");
        assert!(counters.shm_tx_datagrams > counters.tx_datagrams / 2, "{counters:?}");
    }
}
