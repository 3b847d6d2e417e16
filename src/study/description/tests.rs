//! What a description says, and what is wrong with one.

use softrnic_fabric::NodeKind;

use super::*;

const WHOLE: &str = r#"
seed = 7
until = "50ms"
convergence = "200us"

[network]
generator = "clos"
leaves = 2
spines = 2
hosts = 2
edge = { rate = "25Gbps", delay = "500ns" }
core = { rate = "100Gbps", delay = "1us", frame_error_rate = 0.001 }

[switch]
buffer = "4MiB"
pfc = [3]
ecn = { kmin = "100KB", kmax = "400KB", pmax = 0.2, priorities = [3] }
strict = [6]
balance = "least-queue"

[nic]
mtu = 4096
dcqcn = true
rp = { rpg_time_reset = 55000 }

[[flow]]
from = "h0"
to = "h3"
bytes = "10MB"
start = "1ms"
dscp = 24

[[workload]]
kind = "incast"
to = "h1"
bytes = "64KiB"

[[at]]
time = "2ms"
link = "leaf0-spine1"
change = "down"

[[at]]
time = "1ms"
link = "spine1-leaf0"
change = "rate 10Gbps"

[[host]]
name = "h2"
interface = "eth7"

[[fault]]
link = "h3-leaf1"
rules = "drop:op=ack:nth=3"
"#;

fn read(text: &str) -> Result<Description, String> {
    Description::read(text, Path::new("/nonexistent")).map_err(|mistake| mistake.to_string())
}

#[test]
fn a_whole_description() {
    let study = read(WHOLE).expect("a study");
    assert_eq!(study.topology.hosts().len(), 4);
    assert_eq!((study.seed, study.until), (7, Picos::from_micros(50_000)));
    assert_eq!(study.topology.links()[0].spec.rate, 25_000_000_000);
    assert_eq!(study.topology.links()[4].spec.frame_error_rate, 0.001);
    let NodeKind::Switch(switch) = &study.topology.nodes()[0].kind else { panic!("leaf0 is a switch") };
    assert!(switch.pfc.is_lossless(3) && !switch.pfc.is_lossless(2));
    assert!(switch.ecn[3].is_some() && switch.ecn[2].is_none());
    assert_eq!(study.nic.dcqcn.expect("DCQCN").rpg_time_reset, 55_000);
    assert_eq!(study.flows.len(), 1 + 3);
    assert_eq!((study.flows[0].dscp, study.flows[0].start), (24, Picos::from_micros(1000)));
    // By time, and either way round.
    let faults = "drop:op=ack:nth=3".parse().expect("rules");
    assert_eq!((study.changes[0].at, &study.changes[0].becomes), (Picos::ZERO, &Becomes::Faulty(faults)));
    assert_eq!(study.changes[1].becomes, Becomes::Link(LinkChange::Rate(10_000_000_000)));
    assert_eq!(study.changes[1].port.peer(), study.changes[2].port);
    assert_eq!(study.interfaces, [(Host(2), "eth7".to_owned())]);
}

#[test]
fn each_mistake_has_its_line_and_a_sentence() {
    for (from, to, message) in [
        ("hosts = 2", "hots = 2", "line 10: unknown field `hots`, expected one of"),
        ("\"clos\"", "\"torus\"", "line 7: `torus` is not a generator: star, dumbbell, clos, rail"),
        ("hosts = 2", "hosts = 100000", "line 7: there are more than 16384 hosts and switches"),
        ("leaves = 2", "leaves = 4294967295", "line 7: there are more than 16384 hosts and switches"),
        ("leaves = 2\nspines = 2", "leaves = 5000\nspines = 80", "line 7: there are more than 262144 links"),
        ("leaves = 2", "", "line 7: a clos needs leaves, at least 1"),
        ("\"25Gbps\"", "\"25\"", "line 11: `25` is not a rate: write it as 100Gbps"),
        ("\"500ns\"", "\"soon\"", "line 11: `soon` is not a time: write it as 1.5us"),
        ("0.001", "1.5", "line 12: 1.5 is not a probability: it must be from 0 to 1"),
        ("\"4MiB\"", "\"4\"", "line 15: `4` is not a number of bytes: write it as 64KiB or 10MB"),
        ("\"4MiB\"", "\"4KiB\"", "switch leaf0 has 4096 bytes of memory"),
        ("pfc = [3]", "pfc = [8]", "line 16: a priority is 0 to 7, not 8"),
        ("kmax = \"400KB\"", "kmax = \"50KB\"", "line 17: kmax must be greater than kmin"),
        ("\"least-queue\"", "\"luck\"", "line 19: `luck` is not a way to balance"),
        ("mtu = 4096", "mtu = 1500", "line 22: 1500 is not a path MTU: 256, 512, 1024, 2048, 4096"),
        ("from = \"h0\"", "from = \"h9\"", "line 27: no node is named h9"),
        ("from = \"h0\"", "from = \"leaf0\"", "line 27: leaf0 is not a host"),
        ("to = \"h3\"", "to = \"h0\"", "line 28: h0 cannot send to itself"),
        ("dscp = 24", "dscp = 64", "line 31: 64 is not a DSCP: there are 0 to 63"),
        ("\"incast\"", "\"poisson\"", "line 34: poisson needs a `load`"),
        ("bytes = \"64KiB\"", "sizes = \"storage\"", "line 36: only the kind poisson has sizes"),
        ("bytes = \"64KiB\"", "", "line 34: incast needs `bytes`"),
        ("to = \"h1\"", "", "line 34: an incast needs `to`, the host that all send to"),
        (
            "\"incast\"",
            "\"chaos\"",
            "line 34: `chaos` is not a workload: incast, permutation, all-to-all, ring, poisson",
        ),
        ("\"leaf0-spine1\"", "\"leaf0-leaf1\"", "line 40: no link joins leaf0 and leaf1"),
        ("\"leaf0-spine1\"", "\"leaf0\"", "line 40: `leaf0` names no link"),
        ("\"down\"", "\"sideways\"", "line 41: `sideways` is not a change"),
        ("\"down\"", "\"fault eat=1%\"", "line 41: in the fault `eat=1%`: `eat` is not a fault"),
        ("name = \"h2\"", "name = \"leaf0\"", "line 49: leaf0 is not a host"),
        (
            "\"eth7\"",
            "\"an-interface-nobody-has\"",
            "line 50: `an-interface-nobody-has` is not the name of an",
        ),
        ("\"h3-leaf1\"", "\"h3-leaf0\"", "line 53: no link joins h3 and leaf0"),
        ("op=ack:nth=3", "op=nak:nth=3", "line 54: in the fault `drop:op=nak:nth=3`: "),
        (
            "drop:op=ack:nth=3",
            "down:after=2s",
            "line 54: `down:after=2s`: a link has no device and no port of one",
        ),
        ("drop:op=ack:nth=3", "seed=7", "line 54: `seed=7` injects nothing"),
        ("seed = 7", "seed = ", "line 2: "),
    ] {
        let text = WHOLE.replacen(from, to, 1);
        assert_ne!(text, WHOLE, "{from}");
        let told = read(&text).expect_err(from);
        assert!(told.starts_with(message), "{from} -> {to}: {told}");
    }
    assert_eq!(
        read("[network]\ngenerator = \"star\"\nhosts = 2\n").expect_err("nothing to do"),
        "there is nothing to do: add a [[flow]] or a [[workload]]"
    );
    let told = read("[network]\ntopology = \"missing.txt\"\n").expect_err("no such file");
    assert!(told.starts_with("line 2: /nonexistent/missing.txt: "), "{told}");
}

#[test]
fn there_are_no_more_flows_than_fit() {
    let text = "[network]\ngenerator = \"star\"\nhosts = 1001\n[[workload]]\nkind = \"all-to-all\"\nbytes = \"1kB\"\n";
    assert_eq!(read(text).expect_err("too many"), "line 5: that would be more than 1,000,000 flows");
}

#[test]
fn a_poisson_workload_loads_each_link_by_its_share() {
    let text = "[network]\ngenerator = \"star\"\nhosts = 4\nedge = { rate = \"100Gbps\" }\n\
                [[workload]]\nkind = \"poisson\"\nsizes = \"storage\"\nload = 0.5\nfor = \"20ms\"\nstart = \"1ms\"\n";
    let study = read(text).expect("a study");
    for host in 0..4 {
        let own: Vec<_> = study.flows.iter().filter(|flow| flow.src == Host(host)).collect();
        let offered = own.iter().map(|flow| flow.bytes).sum::<u64>() as f64 * 8.0 / 20e-3;
        assert!((offered / 50e9 - 1.0).abs() < 0.25, "host {host} offers {offered} b/s");
        assert!(own.iter().all(|flow| flow.dst != flow.src && flow.start >= Picos::from_micros(1000)));
        assert!(own.iter().all(|flow| flow.start < Picos::from_micros(21_000)));
    }
    assert_eq!(study.flows, read(text).expect("a study").flows);
    for (from, to, message) in [
        ("load = 0.5", "load = 1.5", "line 8: 1.5 is not a load"),
        ("for = \"20ms\"", "", "line 6: poisson needs `for`"),
        ("\"storage\"", "\"luck\"", "line 7: `luck` are not known sizes: web-search, storage"),
        ("load = 0.5", "bytes = \"1kB\"\nload = 0.5", "line 6: poisson needs either `sizes` or `bytes`"),
        ("\"20ms\"", "\"20000s\"", "line 6: that would be more than 1,000,000 flows"),
    ] {
        let told = read(&text.replacen(from, to, 1)).expect_err(from);
        assert!(told.starts_with(message), "{from} -> {to}: {told}");
    }
}
