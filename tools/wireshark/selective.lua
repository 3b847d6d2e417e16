-- Wireshark and tshark: what SoftRNICs send to each other beyond RoCEv2 (docs/wire-extensions.md).
--
--   wireshark -X lua_script:selective.lua capture.pcapng
--
-- Wireshark's own dissector shows the BTH; this adds the selective acknowledgement behind it, and the datagrams of the
-- vendor class to QP 1.

local softrnic = Proto("softrnic_rc", "SoftRNIC")

local SELECTIVE_ACKNOWLEDGE = 0xFF
local UD_SEND_ONLY = 0x64
local BTH, AETH, DETH, ICRC = 12, 4, 8, 4
local MAD_CLASS, OUI = 0x3A, 0x524E49

local f = {
    expected = ProtoField.uint24("softrnic.expected_psn", "Expected PSN", base.DEC),
    syndrome = ProtoField.uint8("softrnic.syndrome", "Syndrome", base.HEX),
    msn = ProtoField.uint24("softrnic.msn", "MSN", base.DEC),
    arrived = ProtoField.string("softrnic.arrived", "PSNs that have come"),
    answer = ProtoField.uint32("softrnic.answer", "Message", base.DEC, { [0] = "question", [1] = "answer" }),
    attribute = ProtoField.uint16("softrnic.attribute", "Attribute", base.HEX, { [0xFF01] = "capabilities" }),
    to = ProtoField.uint24("softrnic.to_qp", "Receiver's QP", base.HEX),
    from = ProtoField.uint24("softrnic.from_qp", "Sender's QP", base.HEX),
    version = ProtoField.uint8("softrnic.version", "Version", base.DEC),
    selective = ProtoField.bool("softrnic.selective_recovery", "Selective recovery", 8, nil, 0x01),
    window = ProtoField.uint16("softrnic.reorder_window", "Reorder window", base.DEC),
}
softrnic.fields = f

local opcode_field = Field.new("infiniband.bth.opcode")

-- The ranges of PSNs whose bits are set.
local function ranges(bits, psn)
    local found, first = {}, nil
    local function close(last)
        if first then
            local from, to = (psn + first) % 0x1000000, (psn + last) % 0x1000000
            found[#found + 1] = from == to and tostring(from) or from .. "-" .. to
            first = nil
        end
    end
    for at = 0, bits:len() * 8 - 1 do
        local byte = bits:get_index(math.floor(at / 8))
        if math.floor(byte / 2 ^ (at % 8)) % 2 == 1 then
            first = first or at
        else
            close(at - 1)
        end
    end
    close(bits:len() * 8 - 1)
    return #found > 0 and table.concat(found, ", ") or "none"
end

local function selective_acknowledge(packet, info, tree)
    local bits = packet(BTH + AETH, packet:len() - BTH - AETH - ICRC)
    local psn = packet(9, 3):uint()
    local arrived = ranges(bits:bytes(), psn)
    local branch = tree:add(softrnic, packet(BTH, packet:len() - BTH - ICRC), "SoftRNIC Selective Acknowledge")
    branch:add(f.expected, packet(9, 3))
    branch:add(f.syndrome, packet(BTH, 1))
    branch:add(f.msn, packet(BTH + 1, 3))
    branch:add(f.arrived, bits, arrived)
    info.cols.info = "SoftRNIC Selective Acknowledge, expects PSN " .. psn .. ", came: " .. arrived
end

local function datagram(packet, info, tree)
    local mad = packet(BTH + DETH, packet:len() - BTH - DETH - ICRC):tvb()
    if mad:len() < 52 or mad(1, 1):uint() ~= MAD_CLASS or mad(37, 3):uint() ~= OUI then
        return
    end
    local branch = tree:add(softrnic, mad(), "SoftRNIC Management Datagram")
    branch:add(f.attribute, mad(16, 2))
    branch:add(f.answer, mad(20, 4))
    branch:add(f.to, mad(40, 3))
    branch:add(f.from, mad(44, 3))
    branch:add(f.version, mad(48, 1))
    branch:add(f.selective, mad(49, 1))
    branch:add(f.window, mad(50, 2))
    local what = mad(20, 4):uint() == 1 and "answer" or "question"
    info.cols.info = "SoftRNIC capabilities, " .. what
end

function softrnic.dissector(buffer, info, tree)
    local opcode = opcode_field()
    if not opcode then
        return
    end
    -- From the BTH to the ICRC.
    local packet = buffer(opcode.offset):tvb()
    if opcode.value == SELECTIVE_ACKNOWLEDGE and packet:len() >= BTH + AETH + ICRC then
        selective_acknowledge(packet, info, tree)
    elseif opcode.value == UD_SEND_ONLY and packet:len() > BTH + DETH + ICRC then
        datagram(packet, info, tree)
    end
end

register_postdissector(softrnic)
