//! Two NICs in one process: one writes into the other's memory and reads it back.

use softrnic_nic::verbs::{
    Access, AddressVector, Context, Cqe, DeviceSpec, Error, Mtu, Psn, QpOptions, Status, WorkRequest,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let near = Context::open(&DeviceSpec { name: "near".into(), ..DeviceSpec::default() })?;
    let far = Context::open(&DeviceSpec { name: "far".into(), ..DeviceSpec::default() })?;
    println!("near {} by {}", near.address(), near.device().mode());
    println!("far  {} by {}", far.address(), far.device().mode());

    let (near_pd, far_pd) = (near.alloc_pd()?, far.alloc_pd()?);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let source = near_pd.register(vec![7u8; 1 << 20], access)?;
    let target = far_pd.register(vec![0u8; 1 << 20], access)?;

    let (near_cq, far_cq) = (near.create_cq(16, None)?, far.create_cq(16, None)?);
    let near_qp = near_pd.create_rc_qp(&near_cq, &near_cq, QpOptions::default())?;
    let far_qp = far_pd.create_rc_qp(&far_cq, &far_cq, QpOptions::default())?;
    // An attacker who could guess them could insert packets between ours.
    let random = || getrandom::u32().map(Psn::new).map_err(|error| error.to_string());
    let (near_psn, far_psn) = (random()?, random()?);
    far_qp.connect(AddressVector::to(near.address()), near_qp.qpn(), Mtu::B4096, far_psn, near_psn)?;
    near_qp.connect(AddressVector::to(far.address()), far_qp.qpn(), Mtu::B4096, near_psn, far_psn)?;

    near_qp.post(WorkRequest::write(target.addr(), target.rkey()).sge(source.sge(0, 1 << 20)).id(1))?;
    println!("write: {:?}", wait(&near_cq)?.status);
    source.write(0, &[0; 1 << 20])?;
    near_qp.post(WorkRequest::read(target.addr(), target.rkey()).sge(source.sge(0, 1 << 20)).id(2))?;
    println!("read:  {:?}", wait(&near_cq)?.status);

    let mut back = vec![0u8; 1 << 20];
    source.read(0, &mut back)?;
    assert!(back.iter().all(|&byte| byte == 7), "what came back is what was written");
    Ok(())
}

fn wait(cq: &softrnic_nic::verbs::Cq) -> Result<Cqe, Error> {
    let mut found = None;
    while found.is_none() {
        cq.poll_with(1, |cqe| found = Some(cqe));
    }
    let cqe = found.ok_or(Error::DeviceFatal)?;
    assert_eq!(cqe.status, Status::Success);
    Ok(cqe)
}
