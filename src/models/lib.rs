//! Limits and rules of real RDMA devices (`--like`), so that what passes on SoftRNIC passes there.
//!
//! A [`Model`] is one device behind one driver: what it reports of itself, what it lacks, and how its provider turns what a
//! program asks of a queue into what it gets. Each figure has its source beside it: a file of Linux or rdma-core with the
//! name that the figure has there, or a public report of the device. Start at `mlx5.rs`.
//!
//! Models only say; `softrnic-nic` asks them. Nothing here is on the path of a packet.

#![forbid(unsafe_code)]

mod bnxt_re;
mod efa;
mod irdma;
mod mlx5;
mod refusal;
mod rxe;

pub use refusal::{Refusal, Rule};

/// A device whose limits and rules are imitated.
pub struct Model {
    /// What it is called after `--like`: its driver.
    pub name: &'static str,
    /// How it identifies itself.
    pub identity: Identity,
    /// What it reports.
    pub limits: Limits,
    /// What it can do, of what SoftRNIC can.
    pub features: Features,
    /// Its scalable reliable datagrams, if it has them.
    pub srd: Option<Srd>,
    /// How its provider sizes the queues of a QP.
    queue_pair: fn(&Asked) -> Result<Granted, Rule>,
    /// How many entries a CQ gets.
    completion_queue: fn(u32) -> Result<u32, Rule>,
    /// How many entries and elements an SRQ gets.
    shared_receive_queue: fn(u32, u32) -> Result<(u32, u32), Rule>,
}

/// How a device identifies itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The hardware, for people.
    pub hardware: &'static str,
    /// `ibv_device_attr.vendor_id`.
    pub vendor_id: u32,
    /// `ibv_device_attr.vendor_part_id`.
    pub part_id: u32,
    /// `ibv_device_attr.hw_ver`.
    pub hw_ver: u32,
    /// `ibv_device_attr.fw_ver`; `None` if none is known.
    pub fw_ver: Option<&'static str>,
    /// `hca_type` in sysfs, if it has that file.
    pub hca_type: Option<&'static str>,
}

/// What a device reports (`ibv_query_device`), where it is below what SoftRNIC has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Limits {
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_mw: u32,
    pub max_pd: u32,
    /// READs and atomics that a QP answers at once (`max_dest_rd_atomic`).
    pub max_qp_rd_atom: u8,
    /// READs and atomics that a QP asks for at once (`max_rd_atomic`).
    pub max_qp_init_rd_atom: u8,
    pub max_ah: u32,
    /// 0 if it has no SRQs, and then the next two are 0 as well.
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    /// 0 if it has no multicast.
    pub max_mcast_groups: u32,
    pub max_mcast_qp_attach: u32,
    pub local_ca_ack_delay: u8,
    pub gid_table_len: u32,
    pub max_message: u32,
    /// 0 if it has no memory of its own.
    pub max_dm_size: u64,
    /// The most inline bytes that any QP gets.
    pub max_inline: u32,
}

/// What a device can do, of what SoftRNIC can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// RC QPs.
    pub rc: bool,
    /// UC QPs.
    pub uc: bool,
    /// XRC domains, QPs and SRQs.
    pub xrc: bool,
    /// Compare-and-swap and fetch-and-add.
    pub atomics: bool,
    /// ATOMIC WRITE and FLUSH.
    pub persistence: bool,
    /// `ibv_modify_srq` with `IBV_SRQ_MAX_WR`.
    pub srq_resize: bool,
    /// Memory windows of type 1.
    pub windows_1: bool,
    /// Memory windows of type 2.
    pub windows_2: bool,
    /// On-demand regions.
    pub on_demand: bool,
    /// `ibv_alloc_null_mr`.
    pub null_mr: bool,
    /// Each address is in the GID table twice: for RoCE v1, and behind that for v2.
    pub roce_v1: bool,
    /// A send slot is free once a completion that shows so was polled; otherwise, once the request is complete.
    pub polling_frees_slots: bool,
}

/// The transport service of a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Service {
    Rc,
    Uc,
    Ud,
    Xrc,
    Srd,
}

/// What a device with SRD reports besides (`efadv_query_device`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Srd {
    pub max_sq_wr: u32,
    /// Elements of receives, and so receives with one element.
    pub max_rq_wr: u32,
    pub max_sq_sge: u32,
    pub max_rq_sge: u32,
    pub max_inline: u32,
    /// The longest WRITE or READ.
    pub max_rdma: u32,
}

/// Kinds of requests, besides SENDs, that a QP is made for (`ibv_qp_init_attr_ex.send_ops_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendOps {
    /// WRITE and READ.
    pub rdma: bool,
    /// Compare-and-swap and fetch-and-add.
    pub atomics: bool,
    /// Binding windows, and invalidating keys.
    pub windows: bool,
}

impl SendOps {
    /// What a QP is made for if nothing is said.
    pub const ALL: SendOps = SendOps { rdma: true, atomics: true, windows: true };
}

/// What a program asks of a new QP (`ibv_qp_cap`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Asked {
    pub service: Service,
    pub ops: SendOps,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline: u32,
    /// Whether it receives from queues of its own; without, the figures for receives are 0.
    pub receives: bool,
}

/// What a QP gets: at least what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Granted {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline: u32,
}

impl Model {
    /// All of them.
    pub const ALL: [&'static Model; 5] =
        [&mlx5::MODEL, &irdma::MODEL, &bnxt_re::MODEL, &rxe::MODEL, &efa::MODEL];

    /// The one with a name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<&'static Model, UnknownModel> {
        Model::ALL.into_iter().find(|model| model.name == name).ok_or(UnknownModel)
    }

    /// What a QP gets.
    ///
    /// # Errors
    /// The device has no such QPs.
    pub fn queue_pair(&self, asked: &Asked) -> Result<Granted, Refusal> {
        let Features { rc, uc, xrc, .. } = self.features;
        match asked.service {
            Service::Rc if !rc => return Err(self.lacks("RC QPs")),
            Service::Srd if self.srd.is_none() => return Err(self.lacks("SRD QPs")),
            Service::Uc if !uc => return Err(self.lacks("UC QPs")),
            Service::Xrc if !xrc => return Err(self.lacks("XRC")),
            _ => {}
        }
        let Limits { max_sge, .. } = self.limits;
        self.limit("max_send_sge", asked.max_send_sge, max_sge)?;
        let max_recv_sge = self.srd.map_or(max_sge, |srd| srd.max_rq_sge);
        self.limit("max_recv_sge", asked.max_recv_sge, max_recv_sge)?;
        (self.queue_pair)(asked).map_err(|rule| self.refuse(rule))
    }

    /// How many entries a CQ gets.
    ///
    /// # Errors
    /// The device has no such CQs.
    pub fn completion_queue(&self, cqe: u32) -> Result<u32, Refusal> {
        self.limit("cqe", cqe, self.limits.max_cqe)?;
        (self.completion_queue)(cqe).map_err(|rule| self.refuse(rule))
    }

    /// How many entries, and elements of each, an SRQ gets.
    ///
    /// # Errors
    /// The device has no such SRQs.
    pub fn shared_receive_queue(&self, max_wr: u32, max_sge: u32) -> Result<(u32, u32), Refusal> {
        if self.limits.max_srq == 0 {
            return Err(self.lacks("SRQs"));
        }
        self.limit("max_wr of an SRQ", max_wr, self.limits.max_srq_wr)?;
        self.limit("max_sge of an SRQ", max_sge, self.limits.max_srq_sge)?;
        (self.shared_receive_queue)(max_wr, max_sge).map_err(|rule| self.refuse(rule))
    }

    /// Nothing, if something is no more than there may be.
    ///
    /// # Errors
    /// It is more.
    pub fn limit(&self, what: &'static str, asked: u32, most: u32) -> Result<(), Refusal> {
        if asked <= most { Ok(()) } else { Err(self.refuse(Rule::Above { what, asked, most })) }
    }

    /// That the device does not have something.
    pub fn lacks(&self, what: &'static str) -> Refusal {
        self.refuse(Rule::Lacks(what))
    }

    /// That the device cannot change something.
    pub fn cannot_change(&self, what: &'static str) -> Refusal {
        self.refuse(Rule::Fixed(what))
    }

    fn refuse(&self, rule: Rule) -> Refusal {
        Refusal { model: self.name, rule }
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Model({})", self.name)
    }
}

impl PartialEq for Model {
    fn eq(&self, other: &Model) -> bool {
        self.name == other.name
    }
}

/// No model has such a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownModel;

impl std::fmt::Display for UnknownModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = Model::ALL.map(|model| model.name);
        write!(f, "there is no such device: use {}", names.join(", "))
    }
}

impl std::error::Error for UnknownModel {}

#[cfg(test)]
mod tests;
