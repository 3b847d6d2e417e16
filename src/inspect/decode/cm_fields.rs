//! The fields of management datagrams.

use softrnic_wire::{
    Bits, CmBody, CmIds, CmMessage, CmPath, Lap, MAD_BODY_LEN, Mad, MgmtClass, PrivateHeader, Rej, Rep, Req,
    Served, ServiceId, SidrRep, SidrReq, VendorAttribute, VendorMad,
};

use super::fields::{FieldSink, Meaning, Value};

/// Passes the fields of a management datagram to the sink.
pub(super) fn mad(mad: &Mad<'_>, sink: &mut dyn FieldSink) {
    sink.layer("mad");
    sink.field("base_version", Value::Dec(mad.base_version.into()));
    sink.field("class", Value::Hex(mad.class.0.into(), 2));
    sink.meaning(Meaning::Name(mad.class.name()));
    sink.field("class_version", Value::Dec(mad.class_version.into()));
    sink.field("method", Value::Hex(mad.method.into(), 2));
    sink.field("status", Value::Hex(mad.status.into(), 4));
    sink.field("transaction_id", Value::Hex(mad.transaction_id, 16));
    sink.field("attribute_id", Value::Hex(mad.attribute_id.into(), 4));
    let vendor = mad.vendor();
    if mad.class == MgmtClass::COMMUNICATION || vendor.is_some() {
        sink.meaning(Meaning::Name(mad.message_name()));
    }
    sink.field("attribute_modifier", Value::Hex(mad.attribute_modifier.into(), 8));
    if let Some(vendor) = vendor {
        return between_softrnics(&vendor, sink);
    }
    match (mad.body, mad.cm()) {
        (_, Some(cm)) => message(&cm, sink),
        (None, None) => sink.field("body", Value::Text("not captured whole")),
        (Some(_), None) => sink.field("body_length", Value::Dec(MAD_BODY_LEN as u64)),
    }
}

fn between_softrnics(vendor: &VendorMad, sink: &mut dyn FieldSink) {
    sink.layer("softrnic");
    sink.field("message", Value::Text(if vendor.answers { "answer" } else { "question" }));
    sink.field("to_qp", Value::Hex(vendor.to.get().into(), 6));
    sink.field("from_qp", Value::Hex(vendor.from.get().into(), 6));
    match vendor.attribute {
        VendorAttribute::Capabilities(capabilities) => {
            sink.field("version", Value::Dec(capabilities.version.into()));
            sink.field("selective_recovery", Value::Flag(capabilities.selective_recovery));
            sink.field("paths", Value::Flag(capabilities.paths));
            sink.field("reorder_window", Value::Dec(capabilities.reorder_window.into()));
        }
        VendorAttribute::Status(_) if !vendor.answers => {}
        VendorAttribute::Status(status) => {
            sink.field("version", Value::Dec(status.version.into()));
            sink.field("state", Value::Dec(status.state.into()));
            sink.field("expected_psn", Value::Dec(status.expected_psn.get().into()));
            sink.field("rnr_naks", Value::Dec(status.rnr_naks.into()));
            sink.field("receives", Value::Dec(status.receives.into()));
            sink.field("requests", Value::Dec(status.requests.into()));
        }
    }
}

fn message(cm: &CmMessage<'_>, sink: &mut dyn FieldSink) {
    sink.layer("cm");
    sink.field("message", Value::Text(cm.name()));
    let mut private = cm.private();
    match cm.body() {
        CmBody::Req(req) => request(req, sink),
        CmBody::Mra(mra) => {
            ids(mra.ids, sink);
            served(mra.answers, sink);
            exponent("service_timeout", mra.service_timeout, sink);
        }
        CmBody::Rej(rej) => reject(rej, sink),
        CmBody::Rep(rep) => reply(rep, sink),
        CmBody::Rtu(of) | CmBody::Drep(of) => ids(*of, sink),
        CmBody::Dreq(dreq) => {
            ids(dreq.ids, sink);
            sink.field("remote_qp", Value::Hex(dreq.remote_qpn.get().into(), 6));
        }
        CmBody::SidrReq(req) => sidr_request(req, sink),
        CmBody::SidrRep(rep) => sidr_reply(rep, sink),
        CmBody::Lap(lap) => load_path(lap, sink),
        CmBody::Apr(apr) => {
            ids(apr.ids, sink);
            sink.field("status", Value::Dec(apr.status.into()));
            if !apr.info.bytes().is_empty() {
                sink.field("info", Value::Bytes(apr.info.bytes()));
            }
        }
    }
    if carries_private_header(cm)
        && let Some(header) = PrivateHeader::read(private)
    {
        sink.layer("rdma_cm");
        sink.field("version", Value::Hex(header.version.into(), 2));
        sink.field("ip_version", Value::Dec(header.addresses.ip_version().into()));
        sink.field("src_port", Value::Dec(header.src_port.into()));
        sink.field("src", Value::Ip(header.addresses.src()));
        sink.field("dst", Value::Ip(header.addresses.dst()));
        private = &private[PrivateHeader::LEN..];
    }
    private_data(private, sink);
}

/// The RDMA CM's header is present if it made the service id.
fn carries_private_header(cm: &CmMessage<'_>) -> bool {
    match cm.body() {
        CmBody::Req(req) => req.service.port().is_some(),
        CmBody::SidrReq(req) => req.service.port().is_some(),
        _ => false,
    }
}

/// Trailing zeros, which pad the field, are left out.
fn private_data(private: &[u8], sink: &mut dyn FieldSink) {
    let used = private.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    if used > 0 {
        sink.layer("private_data");
        sink.field("length", Value::Dec(private.len() as u64));
        sink.field("data", Value::Bytes(&private[..used]));
    }
}

fn ids(ids: CmIds, sink: &mut dyn FieldSink) {
    sink.field("local_id", Value::Hex(ids.local.into(), 8));
    sink.field("remote_id", Value::Hex(ids.remote.into(), 8));
}

fn served(answers: Served, sink: &mut dyn FieldSink) {
    sink.field("answers", Value::Dec(answers.0.get().into()));
    sink.meaning(Meaning::Name(answers.name()));
}

/// A time given as 4.096 µs times a power of two.
fn exponent(name: &'static str, exponent: Bits<5>, sink: &mut dyn FieldSink) {
    sink.field(name, Value::Dec(exponent.get().into()));
    sink.meaning(Meaning::Micros((4096u64 << exponent.get()) / 1000));
}

fn service(id: ServiceId, sink: &mut dyn FieldSink) {
    sink.field("service_id", Value::Hex(id.0, 16));
    if let Some((space, port)) = id.port() {
        sink.meaning(Meaning::Name(space.name()));
        sink.field("dst_port", Value::Dec(port.into()));
    }
}

fn request(req: &Req, sink: &mut dyn FieldSink) {
    sink.field("local_id", Value::Hex(req.local_id.into(), 8));
    sink.field("vendor_id", Value::Hex(req.vendor_id.get().into(), 6));
    service(req.service, sink);
    sink.field("ca_guid", Value::Hex(req.ca_guid, 16));
    sink.field("qkey", Value::Hex(req.qkey.0.into(), 8));
    sink.field("local_qp", Value::Hex(req.qpn.get().into(), 6));
    sink.field("responder_resources", Value::Dec(req.responder_resources.into()));
    sink.field("local_eecn", Value::Hex(req.eecn.0.get().into(), 6));
    sink.field("initiator_depth", Value::Dec(req.initiator_depth.into()));
    sink.field("remote_eecn", Value::Hex(req.eecn.1.get().into(), 6));
    exponent("remote_cm_timeout", req.remote_cm_timeout, sink);
    sink.field("transport", Value::Dec(req.transport.get().into()));
    sink.meaning(Meaning::Name(req.transport_name()));
    sink.field("flow_control", Value::Flag(req.flow_control));
    sink.field("starting_psn", Value::Dec(req.starting_psn.get().into()));
    exponent("local_cm_timeout", req.local_cm_timeout, sink);
    sink.field("retry_count", Value::Dec(req.retry_count.get().into()));
    sink.field("pkey", Value::Hex(req.pkey.0.into(), 4));
    sink.field("path_mtu", Value::Dec(req.mtu_code.get().into()));
    match req.mtu() {
        Some(mtu) => sink.meaning(Meaning::Count(mtu.bytes().into(), "bytes")),
        None => sink.meaning(Meaning::Name("reserved")),
    }
    sink.field("rdc_exists", Value::Flag(req.rdc_exists));
    sink.field("rnr_retry_count", Value::Dec(req.rnr_retry_count.get().into()));
    sink.field("max_cm_retries", Value::Dec(req.max_cm_retries.get().into()));
    sink.field("srq", Value::Flag(req.srq));
    sink.field("extended_transport", Value::Dec(req.extended_transport.get().into()));
    path(&req.primary, "primary_path", sink);
    if req.alternate.local_lid != 0 || req.alternate.local_gid.0 != [0; 16] {
        path(&req.alternate, "alternate_path", sink);
        sink.field("sap_supported", Value::Flag(req.sap_supported));
    }
}

fn path(path: &CmPath, layer: &'static str, sink: &mut dyn FieldSink) {
    sink.layer(layer);
    sink.field("local_lid", Value::Hex(path.local_lid.into(), 4));
    sink.field("remote_lid", Value::Hex(path.remote_lid.into(), 4));
    sink.field("local_gid", Value::Gid(path.local_gid));
    sink.field("remote_gid", Value::Gid(path.remote_gid));
    sink.field("flow_label", Value::Hex(path.flow_label.get().into(), 5));
    sink.field("packet_rate", Value::Dec(path.packet_rate.get().into()));
    sink.field("traffic_class", Value::Hex(path.traffic_class.into(), 2));
    sink.field("hop_limit", Value::Dec(path.hop_limit.into()));
    sink.field("sl", Value::Dec(path.sl.get().into()));
    sink.field("subnet_local", Value::Flag(path.subnet_local));
    exponent("ack_timeout", path.ack_timeout, sink);
}

fn reject(rej: &Rej<'_>, sink: &mut dyn FieldSink) {
    ids(rej.ids, sink);
    served(rej.answers, sink);
    sink.field("reason", Value::Dec(rej.reason.0.into()));
    sink.meaning(Meaning::Name(rej.reason.name()));
    sink.field("info_length", Value::Dec(rej.info.claimed_len().into()));
    if !rej.info.bytes().is_empty() {
        sink.field("info", Value::Bytes(rej.info.bytes()));
    }
}

fn reply(rep: &Rep, sink: &mut dyn FieldSink) {
    ids(rep.ids, sink);
    sink.field("qkey", Value::Hex(rep.qkey.0.into(), 8));
    sink.field("local_qp", Value::Hex(rep.qpn.get().into(), 6));
    sink.field("local_eecn", Value::Hex(rep.eecn.get().into(), 6));
    sink.field("vendor_id", Value::Hex(rep.vendor_id.get().into(), 6));
    sink.field("starting_psn", Value::Dec(rep.starting_psn.get().into()));
    sink.field("responder_resources", Value::Dec(rep.responder_resources.into()));
    sink.field("initiator_depth", Value::Dec(rep.initiator_depth.into()));
    exponent("target_ack_delay", rep.target_ack_delay, sink);
    sink.field("failover", Value::Dec(rep.failover.get().into()));
    sink.field("flow_control", Value::Flag(rep.flow_control));
    sink.field("rnr_retry_count", Value::Dec(rep.rnr_retry_count.get().into()));
    sink.field("srq", Value::Flag(rep.srq));
    sink.field("ca_guid", Value::Hex(rep.ca_guid, 16));
}

fn sidr_request(req: &SidrReq, sink: &mut dyn FieldSink) {
    sink.field("request_id", Value::Hex(req.request_id.into(), 8));
    sink.field("pkey", Value::Hex(req.pkey.0.into(), 4));
    service(req.service, sink);
}

fn sidr_reply(rep: &SidrRep<'_>, sink: &mut dyn FieldSink) {
    sink.field("request_id", Value::Hex(rep.request_id.into(), 8));
    sink.field("status", Value::Dec(rep.status.into()));
    sink.meaning(Meaning::Name(rep.status_name()));
    sink.field("vendor_id", Value::Hex(rep.vendor_id.get().into(), 6));
    sink.field("qp", Value::Hex(rep.qpn.get().into(), 6));
    service(rep.service, sink);
    sink.field("qkey", Value::Hex(rep.qkey.0.into(), 8));
    if !rep.info.bytes().is_empty() {
        sink.field("info", Value::Bytes(rep.info.bytes()));
    }
}

fn load_path(lap: &Lap, sink: &mut dyn FieldSink) {
    ids(lap.ids, sink);
    sink.field("remote_qp", Value::Hex(lap.remote_qpn.get().into(), 6));
    exponent("remote_cm_timeout", lap.remote_cm_timeout, sink);
    path(&lap.path, "proposed_path", sink);
}
