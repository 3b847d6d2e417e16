-- Decodes scalable reliable datagrams (SRD) of SoftRNICs in Wireshark and tshark: docs/wire-extensions.md has the format.
--
--     tshark -X lua_script:softrnic.lua -r trace.pcapng
--     cp softrnic.lua ~/.local/lib/wireshark/plugins/

local srd = Proto("softrnic_srd", "SoftRNIC SRD")

local NAMES = {
  [0xC0] = "SEND", [0xC1] = "RDMA WRITE", [0xC2] = "RDMA READ Request", [0xC3] = "RDMA READ Response",
  [0xC4] = "RDMA READ Failure", [0xC5] = "Cancel", [0xC8] = "Acknowledge", [0xC9] = "Refuse", [0xCA] = "Hello",
  [0xCB] = "Reset",
}
local REASONS = {
  [7] = "key or range", [9] = "no such queue pair, or another Q_Key", [10] = "no receive", [11] = "receive too short",
  [12] = "contradicts itself", [0x80] = "try again",
}

local f = {
  opcode = ProtoField.uint8("srd.opcode", "Opcode", base.HEX, NAMES),
  dest_qp = ProtoField.uint24("srd.dest_qp", "Destination QP", base.HEX),
  has_imm = ProtoField.bool("srd.has_imm", "Has immediate data", 8, nil, 0x01),
  src_qp = ProtoField.uint24("srd.src_qp", "Source QP", base.HEX),
  src_tag = ProtoField.uint32("srd.src_tag", "Sender's tag", base.HEX),
  dst_tag = ProtoField.uint32("srd.dst_tag", "Receiver's tag", base.HEX),
  psn = ProtoField.uint32("srd.psn", "PSN"),
  una = ProtoField.uint32("srd.una", "Lowest PSN waited for"),
  message = ProtoField.uint32("srd.message", "Message", base.HEX),
  qkey = ProtoField.uint32("srd.qkey", "Q_Key", base.HEX),
  length = ProtoField.uint32("srd.length", "Length of the message"),
  offset = ProtoField.uint32("srd.offset", "Offset"),
  imm = ProtoField.uint32("srd.imm", "Immediate data", base.HEX),
  va = ProtoField.uint64("srd.va", "Virtual address", base.HEX),
  rkey = ProtoField.uint32("srd.rkey", "Remote key", base.HEX),
  reason = ProtoField.uint8("srd.reason", "Reason", base.DEC, REASONS),
  latest = ProtoField.uint32("srd.latest", "PSN that came last"),
  bits = ProtoField.bytes("srd.bits", "What came"),
  payload = ProtoField.bytes("srd.payload", "Payload"),
  icrc = ProtoField.uint32("srd.icrc", "ICRC", base.HEX),
}
srd.fields = f

-- Where the payload begins, for packets that have one.
local PAYLOAD = { [0xC0] = 52, [0xC1] = 64, [0xC3] = 40 }

function srd.dissector(buffer, pinfo, tree)
  local opcode = buffer:len() >= 32 and buffer(0, 1):uint() or 0
  if NAMES[opcode] == nil then
    return 0
  end
  pinfo.cols.protocol = "SRD"
  local psn = buffer(24, 4):uint()
  pinfo.cols.info = string.format("%s QP=0x%06x PSN=%d", NAMES[opcode], buffer(5, 3):uint(), psn)
  local t = tree:add(srd, buffer(), "SoftRNIC SRD, " .. NAMES[opcode])
  local at = 0
  local function add(field, length)
    t:add(field, buffer(at, length))
    at = at + length
  end
  add(f.opcode, 1)
  at = 5
  add(f.dest_qp, 3)
  at = 12
  add(f.has_imm, 1)
  add(f.src_qp, 3)
  add(f.src_tag, 4)
  add(f.dst_tag, 4)
  add(f.psn, 4)
  if opcode < 0xC8 then
    add(f.una, 4)
    add(f.message, 4)
  end
  if opcode == 0xC0 or opcode == 0xC1 then
    add(f.qkey, 4)
    add(f.length, 4)
    add(f.offset, 4)
    add(f.imm, 4)
  elseif opcode == 0xC2 then
    add(f.qkey, 4)
    add(f.length, 4)
  elseif opcode == 0xC3 then
    add(f.offset, 4)
  elseif opcode == 0xC4 then
    add(f.reason, 1)
  elseif opcode == 0xC8 then
    add(f.latest, 4)
    add(f.bits, 64)
  elseif opcode == 0xC9 then
    add(f.message, 4)
    add(f.reason, 1)
  end
  if opcode == 0xC1 or opcode == 0xC2 then
    add(f.va, 8)
    add(f.rkey, 4)
  end
  local pad = bit.band(bit.rshift(buffer(1, 1):uint(), 4), 3)
  local first, last = PAYLOAD[opcode], buffer:len() - 4 - pad
  if first ~= nil and last > first then
    t:add(f.payload, buffer(first, last - first))
  end
  t:add_le(f.icrc, buffer(buffer:len() - 4, 4))
  return buffer:len()
end

-- In front of Wireshark's own dissector of RoCE, which gets all else.
local infiniband = DissectorTable.get("udp.port"):get_dissector(4791)
local roce = Proto("softrnic", "SoftRNIC")
function roce.dissector(buffer, pinfo, tree)
  local opcode = buffer:len() > 0 and buffer(0, 1):uint() or 0
  if NAMES[opcode] ~= nil then
    return srd.dissector(buffer, pinfo, tree)
  end
  return infiniband and infiniband:call(buffer, pinfo, tree) or 0
end
DissectorTable.get("udp.port"):add(4791, roce)
