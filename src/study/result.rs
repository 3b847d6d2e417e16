//! What came of a study.

use serde::{Deserialize, Serialize};
use softrnic_fabric::{Fabric, PortId};

/// A flow.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowResult {
    /// Its number.
    pub flow: usize,
    /// The sender's name.
    pub src: String,
    /// The receiver's name.
    pub dst: String,
    /// Bytes of the application.
    pub bytes: u64,
    /// Of those, bytes that the receiver has got in order.
    pub delivered: u64,
    /// When it was posted, in nanoseconds.
    pub start_ns: f64,
    /// From the post to the sender's last completion, in nanoseconds; absent if it did not end.
    pub fct_ns: Option<f64>,
    /// How a failed one ended.
    pub error: Option<String>,
}

/// A port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PortResult {
    /// Its node and the node at the other end.
    pub port: String,
    /// Frames that left.
    pub tx_frames: u64,
    /// Bytes that left, as on the wire.
    pub tx_bytes: u64,
    /// Frames marked with "congestion experienced".
    pub marked: u64,
    /// Frames dropped for want of room.
    pub dropped: u64,
    /// Frames damaged on the link.
    pub lost_damaged: u64,
    /// Frames lost because the link was down.
    pub lost_down: u64,
    /// Frames that faults have lost, doubled, delayed or damaged on purpose.
    pub faults: u64,
    /// Pauses that it was told.
    pub pauses_received: u64,
    /// How long it was paused, in nanoseconds.
    pub paused_ns: f64,
    /// The longest egress queue, in bytes.
    pub queue_peak: u64,
}

impl PortResult {
    /// What a port has counted so far.
    pub fn of<P: Clone>(fabric: &Fabric<P>, port: PortId) -> PortResult {
        let counters = fabric.counters(port);
        PortResult {
            port: fabric.topology().port_name(port),
            tx_frames: counters.tx_frames,
            tx_bytes: counters.tx_bytes,
            marked: counters.marked,
            dropped: counters.dropped,
            lost_damaged: counters.lost_damaged,
            lost_down: counters.lost_down,
            faults: counters.meddled,
            pauses_received: counters.pauses_received,
            paused_ns: counters.paused.0 as f64 / 1000.0,
            queue_peak: counters.queue_peak,
        }
    }

    /// All ports of a network.
    pub fn all<P: Clone>(fabric: &Fabric<P>) -> Vec<PortResult> {
        let ports = 0..2 * fabric.topology().links().len() as u32;
        ports.map(|port| PortResult::of(fabric, PortId(port))).collect()
    }

    /// Its counts, in the order of `ports.csv`: frames, bytes, and what became of frames, up to the pauses.
    pub fn counts(&self) -> [u64; 8] {
        [
            self.tx_frames,
            self.tx_bytes,
            self.marked,
            self.dropped,
            self.lost_damaged,
            self.lost_down,
            self.faults,
            self.pauses_received,
        ]
    }

    /// What it has counted since it had counted `before`. The longest queue is that of the whole time.
    pub fn since(&self, before: &PortResult) -> PortResult {
        PortResult {
            tx_frames: self.tx_frames - before.tx_frames,
            tx_bytes: self.tx_bytes - before.tx_bytes,
            marked: self.marked - before.marked,
            dropped: self.dropped - before.dropped,
            lost_damaged: self.lost_damaged - before.lost_damaged,
            lost_down: self.lost_down - before.lost_down,
            faults: self.faults - before.faults,
            pauses_received: self.pauses_received - before.pauses_received,
            paused_ns: self.paused_ns - before.paused_ns,
            ..self.clone()
        }
    }
}

/// The state at one time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sample {
    /// Virtual time, in nanoseconds.
    pub time_ns: f64,
    /// For each flow, bytes that its receiver has got in order.
    pub delivered: Vec<u64>,
    /// For each port, bytes in its egress queue, all priorities.
    pub queued: Vec<u64>,
}

/// All of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Flows, in their order.
    pub flows: Vec<FlowResult>,
    /// Ports of all nodes.
    pub ports: Vec<PortResult>,
    /// What was asked for by `sample`.
    pub samples: Vec<Sample>,
    /// Counters of the NICs' transports, summed; those that are not 0.
    pub counters: std::collections::BTreeMap<&'static str, u64>,
    /// Virtual time at the end, in nanoseconds.
    pub end_ns: f64,
    /// Events of the fabric.
    pub events: u64,
    /// Frames times links.
    pub hops: u64,
}

/// Completion times of all flows that ended, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The fastest.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// Of twenty, the slowest but one.
    pub p95: f64,
    /// Of a hundred, the slowest but one.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

impl Report {
    /// Completion times; `None` if no flow has ended.
    pub fn summary(&self) -> Option<Summary> {
        let mut times: Vec<f64> = self.flows.iter().filter_map(|flow| flow.fct_ns).collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get(((times.len() as f64 * share).ceil() as usize).max(1) - 1).copied();
        Some(Summary { min: at(0.0)?, p50: at(0.5)?, p95: at(0.95)?, p99: at(0.99)?, max: at(1.0)? })
    }

    /// The ports as CSV, with a line of titles.
    pub fn ports_csv(&self) -> String {
        let titles = "port,tx_frames,tx_bytes,marked,dropped,lost_damaged,lost_down,faults,pauses_received,paused_ns,queue_peak\n";
        let line = |port: &PortResult| {
            let counts: Vec<String> = port.counts().iter().map(u64::to_string).collect();
            format!("{},{},{:.3},{}\n", port.port, counts.join(","), port.paused_ns, port.queue_peak)
        };
        self.ports.iter().map(line).fold(titles.to_owned(), |text, line| text + &line)
    }

    /// The flows as CSV, with a line of titles.
    pub fn flows_csv(&self) -> String {
        let mut text = String::from("flow,src,dst,bytes,delivered,start_ns,fct_ns,error\n");
        for flow in &self.flows {
            let fct = flow.fct_ns.map(|fct| format!("{fct:.3}")).unwrap_or_default();
            let error = flow.error.as_deref().unwrap_or_default();
            let FlowResult { flow, src, dst, bytes, delivered, start_ns, .. } = flow;
            text += &format!("{flow},{src},{dst},{bytes},{delivered},{start_ns:.3},{fct},{error}\n");
        }
        text
    }

    /// What each flow had delivered at each sample, as CSV with a line of titles.
    pub fn flow_series_csv(&self) -> String {
        let mut text = String::from("time_ns,flow,delivered\n");
        for sample in &self.samples {
            for (flow, delivered) in sample.delivered.iter().enumerate() {
                text += &format!("{:.3},{flow},{delivered}\n", sample.time_ns);
            }
        }
        text
    }

    /// The egress queue of each port at each sample, as CSV with a line of titles. Ports that never queued are left out.
    pub fn port_series_csv(&self) -> String {
        let mut text = String::from("time_ns,port,queued\n");
        for sample in &self.samples {
            for (port, queued) in
                self.ports.iter().zip(&sample.queued).filter(|(port, _)| port.queue_peak > 0)
            {
                text += &format!("{:.3},{},{queued}\n", sample.time_ns, port.port);
            }
        }
        text
    }
}
