//! Posting and polling as applications do it: the rings alone, and the verbs over a real device.

use std::error::Error;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use softrnic_engine::{LocalData, RecvRequest};
use softrnic_nic::verbs::{
    Access, AddressVector, Context, Cq, DeviceSpec, Mr, Psn, Qp, QpOptions, Status, WorkRequest,
};
use softrnic_sync::queue::{completion_ring, recv_ring};
use std::sync::Arc;

fn rings(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring");
    let (mut app, mut nic) = recv_ring::<RecvRequest>(64).expect("memory");
    group.bench_function("post and take", |b| {
        b.iter(|| {
            let pushed = app.push(RecvRequest { wr_id: 1, data: LocalData::empty(), length: 0 });
            assert!(pushed.is_ok());
            black_box(nic.pop())
        });
    });
    let (mut app, mut nic) = completion_ring::<[u64; 8]>(64).expect("memory");
    group.bench_function("publish and poll", |b| {
        b.iter(|| {
            assert!(nic.push(black_box([7; 8])).is_ok());
            black_box(app.pop())
        });
    });
    group.finish();
}

/// Two devices in one process, over UDP on loopback.
struct Loop {
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    near: Mr,
    far: Mr,
    /// Kept alive, with its progress thread.
    _peer: Arc<Qp>,
}

impl Loop {
    fn open() -> Result<Loop, Box<dyn Error>> {
        let open = |name: &str| Context::open(&DeviceSpec { name: name.into(), ..DeviceSpec::default() });
        let (near, far) = (open("near")?, open("far")?);
        let (near_pd, far_pd) = (near.alloc_pd()?, far.alloc_pd()?);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let (near_mr, far_mr) =
            (near_pd.register(vec![0; 1 << 16], access)?, far_pd.register(vec![0; 1 << 16], access)?);
        let (cq, far_cq) = (near.create_cq(256, None)?, far.create_cq(16, None)?);
        let qp = near_pd.create_rc_qp(&cq, &cq, QpOptions::default())?;
        let peer = far_pd.create_rc_qp(&far_cq, &far_cq, QpOptions::default())?;
        let mtu = near.port()?.active_mtu;
        peer.connect(AddressVector::to(near.address()), qp.qpn(), mtu, Psn::ZERO, Psn::ZERO)?;
        qp.connect(AddressVector::to(far.address()), peer.qpn(), mtu, Psn::ZERO, Psn::ZERO)?;
        Ok(Loop { qp, cq, near: near_mr, far: far_mr, _peer: peer })
    }

    /// Posts WRITEs of `size` bytes and waits for all of them.
    fn write(&self, size: usize, count: usize) {
        for _ in 0..count {
            let request = WorkRequest::write(self.far.addr(), self.far.rkey());
            let posted = self.qp.post(request.sge(self.near.sge(0, size)));
            posted.unwrap_or_else(|error| panic!("post: {error}"));
        }
        let mut left = count;
        while left > 0 {
            left -= self.cq.poll_with(left, |cqe| assert_eq!(cqe.status, Status::Success));
        }
    }
}

fn device(c: &mut Criterion) {
    const MESSAGES: usize = 64;
    let ends = Loop::open().unwrap_or_else(|error| panic!("two devices on loopback: {error}"));
    let mut group = c.benchmark_group("device");
    // A poll of an empty queue looks at the network.
    group.bench_function("poll, nothing there", |b| b.iter(|| ends.cq.poll_with(16, |_| {})));
    group.throughput(Throughput::Elements(MESSAGES as u64));
    for size in [64, 4096] {
        group.bench_function(format!("post and complete {MESSAGES} WRITEs of {size}"), |b| {
            b.iter(|| ends.write(size, MESSAGES));
        });
    }
    group.finish();
}

criterion_group!(benches, rings, device);
criterion_main!(benches);
