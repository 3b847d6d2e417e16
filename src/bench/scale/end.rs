//! One process's NIC with many QPs.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use softrnic_nic::verbs::{
    Access, AddressVector, Context, Cq, DeviceSpec, Mr, Mtu, Pd, Psn, Qp, QpOptions, Qpn, Rkey, Status,
};

use crate::process::{Line, Result};

/// See the [module](self).
pub struct End {
    pub context: Context,
    pub memory: Mr,
    pub cq: Arc<Cq>,
    pub qps: Vec<Arc<Qp>>,
    /// Address and key of the peer's memory, once connected.
    pub remote: (u64, Rkey),
    pd: Arc<Pd>,
    options: QpOptions,
}

impl End {
    /// A NIC with `bytes` registered and no QPs.
    pub fn open(device: &str, bytes: usize, depth: usize, cq_depth: usize) -> Result<End> {
        let spec: DeviceSpec = device.parse()?;
        let context = Context::open(&spec)?;
        let pd = context.alloc_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = pd.register(vec![0; bytes], access)?;
        let cq = context.create_cq(cq_depth, None)?;
        let options = QpOptions { max_send_wr: depth, max_recv_wr: depth, ..QpOptions::default() };
        Ok(End { context, memory, cq, qps: Vec::new(), remote: (0, Rkey(0)), pd, options })
    }

    /// Takes up to `most` completions, which must be successes, and hands on their numbers; returns how many.
    pub fn poll(&self, most: usize, mut take: impl FnMut(u64)) -> Result<usize> {
        let mut failed = None;
        let found = self.cq.poll_with(most, |cqe| match cqe.status {
            Status::Success => take(cqe.wr_id),
            status => failed = failed.or(Some(status)),
        });
        match failed {
            Some(status) => Err(format!("a WRITE failed: {status:?}").into()),
            None => Ok(found),
        }
    }

    pub fn add_qps(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            self.qps.push(self.pd.create_rc_qp(&self.cq, &self.cq, self.options.clone())?);
        }
        Ok(())
    }

    /// Connects the last `count` QPs to as many of the process behind the line, which does the same.
    pub fn connect(&mut self, count: usize, line: &mut Line) -> Result<()> {
        let IpAddr::V4(address) = self.context.address() else { return Err("IPv4 is needed".into()) };
        let mtu = self.context.port()?.active_mtu;
        line.say(&[
            u32::from(address).into(),
            mtu.bytes().into(),
            self.memory.addr(),
            self.memory.rkey().0.into(),
        ])?;
        let [address, their_mtu, va, rkey] = line.hear()?;
        self.remote = (va, Rkey(rkey as u32));
        let mtu = Mtu::from_bytes(their_mtu as u32).map_or(mtu, |theirs| theirs.min(mtu));
        let peer = AddressVector::to(Ipv4Addr::from(address as u32).into());
        let first = self.qps.len() - count;
        // At once: many small pieces would fill the line before anyone reads it.
        let numbers: Vec<u64> = self.qps[first..].iter().map(|qp| qp.qpn().get().into()).collect();
        line.say(&numbers)?;
        for qp in &self.qps[first..] {
            let [qpn] = line.hear()?;
            qp.connect(peer, Qpn::new(qpn as u32), mtu, Psn::ZERO, Psn::ZERO)?;
        }
        // Nobody sends before the other side can receive.
        line.say(&[1])?;
        line.hear::<1>()?;
        Ok(())
    }
}
