//! A client for `ibv_rc_pingpong -g INDEX`: talks to any verbs device, kernel rxe included.
//!
//!     pingpong SERVER [BYTES [ROUNDS]]

use std::io::{Read, Write};
use std::net::TcpStream;

use softrnic_nic::verbs::{
    Access, AddressVector, Context, Cqe, Gid, Mtu, Psn, QpOptions, Qpn, Status, WcOpcode, WorkRequest,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let server = arguments.first().ok_or("usage: pingpong SERVER [BYTES [ROUNDS]]")?;
    let bytes: usize = arguments.get(1).map_or(Ok(4096), |text| text.parse())?;
    let rounds: usize = arguments.get(2).map_or(Ok(1000), |text| text.parse())?;

    let context = Context::open_default()?;
    let pd = context.alloc_pd()?;
    let mr = pd.register(vec![0x7b; bytes.max(1)], Access::LOCAL_WRITE)?;
    let cq = context.create_cq(1024, None)?;
    let options = QpOptions { max_recv_wr: 500, ..QpOptions::default() };
    let qp = pd.create_rc_qp(&cq, &cq, options)?;
    let psn = Psn::new(getrandom::u32().map_err(|error| error.to_string())?);

    let mut stream = TcpStream::connect((server.as_str(), 18515))?;
    let gid: String = context.gid(0)?.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let own = format!("{:04x}:{:06x}:{:06x}:{gid}\0", 0, qp.qpn().get(), psn.get());
    stream.write_all(own.as_bytes())?;
    let mut reply = vec![0u8; own.len()];
    stream.read_exact(&mut reply)?;
    stream.write_all(b"done\0")?;
    let reply = String::from_utf8(reply)?;
    let fields: Vec<&str> = reply.trim_end_matches('\0').split(':').collect();
    let peer_qpn = Qpn::new(u32::from_str_radix(fields[1], 16)?);
    let peer_psn = Psn::new(u32::from_str_radix(fields[2], 16)?);
    let peer_gid = Gid(u128::from_str_radix(fields[3], 16)?.to_be_bytes());
    println!("peer {} QPN {:#x}", peer_gid.to_ip(), peer_qpn.get());

    qp.connect(AddressVector::to(peer_gid.to_ip()), peer_qpn, Mtu::B1024, psn, peer_psn)?;
    for _ in 0..500 {
        qp.post_recv(1, &[mr.sge(0, bytes)])?;
    }
    let start = std::time::Instant::now();
    let (mut sent, mut received, mut posted) = (0, 0, 1);
    qp.post(WorkRequest::send().sge(mr.sge(0, bytes)).id(2))?;
    while sent < rounds || received < rounds {
        let mut found: Vec<Cqe> = Vec::new();
        cq.poll_with(16, |cqe| found.push(cqe));
        for cqe in found {
            assert_eq!(cqe.status, Status::Success, "after {sent} sends and {received} receives");
            if cqe.opcode == WcOpcode::Recv {
                received += 1;
                qp.post_recv(1, &[mr.sge(0, bytes)])?;
            } else {
                sent += 1;
            }
        }
        if posted < rounds && sent == posted && received == posted {
            qp.post(WorkRequest::send().sge(mr.sge(0, bytes)).id(2))?;
            posted += 1;
        }
    }
    println!(
        "{rounds} rounds of {bytes} bytes, {:.1} us each",
        start.elapsed().as_micros() as f64 / rounds as f64
    );
    Ok(())
}
