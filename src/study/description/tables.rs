//! The tables of the file, as they are written.

use serde::Deserialize;
use softrnic_fabric::{
    Balance, Ecn, Headroom, HostConfig, LinkSpec, PRIORITIES, Parts, Schedule, SwitchConfig, Trim,
};
use softrnic_transport::{RateParameters, WindowConfig};
use softrnic_wire::{MAX_PATHS, Mtu};
use toml::Spanned;

use super::{Mistake, Reader, quantity};
use crate::nic::NicConfig;

type Text = Spanned<String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub seed: Option<u64>,
    pub until: Option<Text>,
    pub convergence: Option<Text>,
    pub sample: Option<Text>,
    pub slow: Option<Spanned<u32>>,
    pub network: Network,
    #[serde(default)]
    switch: Switch,
    #[serde(default)]
    pub nic: Nic,
    #[serde(default)]
    pub flow: Vec<FlowTable>,
    #[serde(default)]
    pub workload: Vec<WorkloadTable>,
    #[serde(default)]
    pub at: Vec<At>,
    #[serde(default)]
    pub host: Vec<HostTable>,
    #[serde(default)]
    pub fault: Vec<FaultTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    pub generator: Option<Text>,
    pub hosts: Option<u32>,
    pub leaves: Option<u32>,
    pub spines: Option<u32>,
    pub rails: Option<u32>,
    pub addresses: Option<Text>,
    /// Files of the ns-3 simulators.
    pub topology: Option<Text>,
    pub flows: Option<Text>,
    #[serde(default)]
    edge: LinkTable,
    core: Option<LinkTable>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    rate: Option<Text>,
    delay: Option<Text>,
    bit_error_rate: Option<Spanned<f64>>,
    frame_error_rate: Option<Spanned<f64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Switch {
    buffer: Option<Text>,
    reserve: Option<Text>,
    latency: Option<Text>,
    balance: Option<Text>,
    /// Lossless priorities.
    pfc: Option<Spanned<Vec<u8>>>,
    headroom: Option<Text>,
    ingress_alpha_log2: Option<i8>,
    egress_alpha_log2: Option<i8>,
    ecn: Option<EcnTable>,
    /// Strict priorities.
    strict: Option<Spanned<Vec<u8>>>,
    trim: Option<TrimTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EcnTable {
    kmin: Text,
    kmax: Text,
    pmax: Spanned<f64>,
    /// All, if it is absent.
    priorities: Option<Spanned<Vec<u8>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrimTable {
    bytes: Text,
    priority: Spanned<u8>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    mtu: Option<Spanned<u32>>,
    dcqcn: Option<bool>,
    cnp_interval_us: Option<u32>,
    window: Option<Text>,
    early_retransmission: Option<bool>,
    /// `gbn` or `selective`.
    recovery: Option<Text>,
    /// How many; more than one needs `recovery = "selective"`.
    paths: Option<Spanned<u8>>,
    timeout: Option<Spanned<u8>>,
    retry_cnt: Option<Spanned<u8>>,
    /// DCQCN's parameters by the names that Linux gives them under `roce_rp`.
    rp: Option<RpTable>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct RpTable {
    rpg_time_reset: Option<u64>,
    rpg_byte_reset: Option<u64>,
    rpg_threshold: Option<u32>,
    rpg_ai_rate: Option<u64>,
    rpg_hai_rate: Option<u64>,
    rpg_min_rate: Option<u64>,
    rpg_min_dec_fac: Option<u64>,
    dce_tcp_g: Option<u32>,
    dce_tcp_rtt: Option<u64>,
    rate_reduce_monitor_period: Option<u64>,
    clamp_tgt_rate: Option<bool>,
    clamp_tgt_rate_after_time_inc: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowTable {
    pub from: Text,
    pub to: Text,
    pub bytes: Text,
    pub start: Option<Text>,
    pub dscp: Option<Spanned<u8>>,
    pub sport: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadTable {
    pub kind: Text,
    /// Of each flow; `poisson` may have `sizes` instead.
    pub bytes: Option<Text>,
    pub sizes: Option<Text>,
    pub load: Option<Spanned<f64>>,
    #[serde(rename = "for")]
    pub lasts: Option<Text>,
    pub to: Option<Text>,
    pub start: Option<Text>,
    pub dscp: Option<Spanned<u8>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct At {
    pub time: Text,
    pub link: Text,
    pub change: Text,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostTable {
    pub name: Text,
    pub interface: Text,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultTable {
    pub link: Text,
    pub rules: Text,
}

impl File {
    /// Hosts, switches and links.
    pub fn parts(&self, reader: &Reader<'_>) -> Result<Parts, Mistake> {
        let switch = self.switch.config(reader)?;
        let host = HostConfig { pfc: switch.pfc, ..HostConfig::default() };
        let edge = self.network.edge.spec(reader)?;
        let core = match &self.network.core {
            Some(core) => core.spec(reader)?,
            None => edge,
        };
        Ok(Parts { host, switch, edge, core })
    }
}

impl LinkTable {
    fn spec(&self, reader: &Reader<'_>) -> Result<LinkSpec, Mistake> {
        let mut spec = LinkSpec::default();
        if let Some(rate) = &self.rate {
            spec.rate = reader.parse(rate, quantity::rate)?;
        }
        if let Some(delay) = &self.delay {
            spec.delay = reader.parse(delay, quantity::time)?;
        }
        if let Some(rate) = &self.bit_error_rate {
            spec.bit_error_rate = probability(rate, reader)?;
        }
        if let Some(rate) = &self.frame_error_rate {
            spec.frame_error_rate = probability(rate, reader)?;
        }
        Ok(spec)
    }
}

impl Switch {
    fn config(&self, reader: &Reader<'_>) -> Result<SwitchConfig, Mistake> {
        let mut config = SwitchConfig::default();
        if let Some(buffer) = &self.buffer {
            config.buffer = reader.parse(buffer, quantity::bytes)?;
        }
        if let Some(reserve) = &self.reserve {
            config.reserve = reader.parse(reserve, quantity::bytes)?;
        }
        if let Some(latency) = &self.latency {
            config.latency = reader.parse(latency, quantity::time)?;
        }
        if let Some(balance) = &self.balance {
            config.balance = match balance.as_ref().as_str() {
                "ecmp" => Balance::default(),
                "round-robin" => Balance::RoundRobin,
                "random" => Balance::Random,
                "least-queue" => Balance::LeastQueue,
                other => {
                    let known = "ecmp, round-robin, random, least-queue";
                    return Err(reader.wrong(balance, format!("`{other}` is not a way to balance: {known}")));
                }
            };
        }
        if let Some(priorities) = &self.pfc {
            config.pfc.lossless = bits(priorities, reader)?;
        }
        if let Some(headroom) = &self.headroom {
            config.pfc.headroom = match headroom.as_ref().as_str() {
                "auto" => Headroom::Auto,
                _ => Headroom::Bytes(reader.parse(headroom, quantity::bytes)?),
            };
        }
        config.ingress_alpha_log2 = self.ingress_alpha_log2.unwrap_or(config.ingress_alpha_log2);
        config.egress_alpha_log2 = self.egress_alpha_log2.unwrap_or(config.egress_alpha_log2);
        if let Some(table) = &self.ecn {
            let (kmin, kmax) =
                (reader.parse(&table.kmin, quantity::bytes)?, reader.parse(&table.kmax, quantity::bytes)?);
            if kmin >= kmax {
                return Err(reader.wrong(&table.kmax, "kmax must be greater than kmin".into()));
            }
            let ecn = Ecn { kmin, kmax, pmax: probability(&table.pmax, reader)? };
            let marked =
                table.priorities.as_ref().map_or(Ok(u8::MAX), |priorities| bits(priorities, reader))?;
            config.ecn = std::array::from_fn(|priority| (marked >> priority & 1 != 0).then_some(ecn));
        }
        if let Some(strict) = &self.strict {
            let strict = bits(strict, reader)?;
            for (priority, schedule) in config.schedule.iter_mut().enumerate() {
                if strict >> priority & 1 != 0 {
                    *schedule = Schedule::Strict;
                }
            }
        }
        if let Some(table) = &self.trim {
            let bytes = reader.parse(&table.bytes, quantity::bytes)?;
            let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes >= 84);
            let bytes = bytes.ok_or_else(|| {
                reader.wrong(&table.bytes, "no frame is shorter than 84B on the wire".into())
            })?;
            config.trim = Some(Trim { bytes, priority: priority(&table.priority, reader)? });
        }
        Ok(config)
    }
}

impl Nic {
    /// The NICs.
    pub fn config(&self, reader: &Reader<'_>) -> Result<NicConfig, Mistake> {
        let mut nic = NicConfig::default();
        if let Some(mtu) = &self.mtu {
            let known = Mtu::from_bytes(*mtu.as_ref());
            nic.mtu = known.ok_or_else(|| {
                reader.wrong(mtu, format!("{} is not a path MTU: 256, 512, 1024, 2048, 4096", mtu.as_ref()))
            })?;
        }
        if self.dcqcn.unwrap_or(self.rp.is_some()) {
            nic.dcqcn = Some(self.rp.map_or_else(RateParameters::keeping_target, RpTable::parameters));
        }
        nic.cnp_interval_us = self.cnp_interval_us.unwrap_or(nic.cnp_interval_us);
        if let Some(window) = &self.window {
            let bytes = reader.parse(window, quantity::bytes)?;
            nic.window = WindowConfig { initial: bytes, min: bytes, max: bytes };
        }
        nic.early_retransmission = self.early_retransmission.unwrap_or(nic.early_retransmission);
        if let Some(recovery) = &self.recovery {
            nic.selective_recovery = match recovery.as_ref().as_str() {
                "gbn" => false,
                "selective" => true,
                other => {
                    return Err(
                        reader.wrong(recovery, format!("{other} is no way to recover: gbn, selective"))
                    );
                }
            };
        }
        if let Some(paths) = &self.paths {
            nic.paths = within(paths, MAX_PATHS, "paths", reader)?.max(1);
            if nic.paths > 1 && !(nic.selective_recovery && nic.early_retransmission) {
                let problem =
                    "more than one path needs recovery = \"selective\" and early_retransmission = true";
                return Err(reader.wrong(paths, problem.into()));
            }
        }
        if let Some(timeout) = &self.timeout {
            nic.timeout = within(timeout, 31, "timeout", reader)?;
        }
        if let Some(retry_cnt) = &self.retry_cnt {
            nic.retry_cnt = within(retry_cnt, 7, "retry_cnt", reader)?;
        }
        Ok(nic)
    }
}

impl RpTable {
    fn parameters(self) -> RateParameters {
        let usual = RateParameters::keeping_target();
        RateParameters {
            rpg_time_reset: self.rpg_time_reset.unwrap_or(usual.rpg_time_reset),
            rpg_byte_reset: self.rpg_byte_reset.unwrap_or(usual.rpg_byte_reset),
            rpg_threshold: self.rpg_threshold.unwrap_or(usual.rpg_threshold),
            rpg_max_rate: usual.rpg_max_rate,
            rpg_ai_rate: self.rpg_ai_rate.unwrap_or(usual.rpg_ai_rate),
            rpg_hai_rate: self.rpg_hai_rate.unwrap_or(usual.rpg_hai_rate),
            rpg_min_rate: self.rpg_min_rate.unwrap_or(usual.rpg_min_rate),
            rpg_min_dec_fac: self.rpg_min_dec_fac.unwrap_or(usual.rpg_min_dec_fac),
            dce_tcp_g: self.dce_tcp_g.unwrap_or(usual.dce_tcp_g),
            dce_tcp_rtt: self.dce_tcp_rtt.unwrap_or(usual.dce_tcp_rtt),
            rate_reduce_monitor_period: self
                .rate_reduce_monitor_period
                .unwrap_or(usual.rate_reduce_monitor_period),
            clamp_tgt_rate: self.clamp_tgt_rate.unwrap_or(usual.clamp_tgt_rate),
            clamp_tgt_rate_after_time_inc: self
                .clamp_tgt_rate_after_time_inc
                .unwrap_or(usual.clamp_tgt_rate_after_time_inc),
        }
    }
}

fn probability(value: &Spanned<f64>, reader: &Reader<'_>) -> Result<f64, Mistake> {
    let number = *value.as_ref();
    if (0.0..=1.0).contains(&number) {
        return Ok(number);
    }
    Err(reader.wrong(value, format!("{number} is not a probability: it must be from 0 to 1")))
}

fn within(value: &Spanned<u8>, most: u8, what: &str, reader: &Reader<'_>) -> Result<u8, Mistake> {
    let number = *value.as_ref();
    if number <= most {
        Ok(number)
    } else {
        Err(reader.wrong(value, format!("{what} is 0 to {most}, not {number}")))
    }
}

fn priority(value: &Spanned<u8>, reader: &Reader<'_>) -> Result<u8, Mistake> {
    within(value, PRIORITIES as u8 - 1, "a priority", reader)
}

fn bits(values: &Spanned<Vec<u8>>, reader: &Reader<'_>) -> Result<u8, Mistake> {
    values.as_ref().iter().try_fold(0, |bits, &priority| match usize::from(priority) < PRIORITIES {
        true => Ok(bits | 1 << priority),
        false => Err(reader.wrong(values, format!("a priority is 0 to 7, not {priority}"))),
    })
}
