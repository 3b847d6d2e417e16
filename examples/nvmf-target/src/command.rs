//! Commands and responses as they are in capsules (NVM Express Base 2.0, 3.3.3; NVMe over RDMA 1.0, 3). All numbers are
//! little-endian.

/// Bytes of a submission queue entry, with which a capsule begins.
pub const ENTRY: usize = 64;
/// Bytes of a response.
pub const RESPONSE: usize = 16;

/// A submission queue entry.
pub struct Command([u8; ENTRY]);

impl Command {
    pub fn new(bytes: [u8; ENTRY]) -> Command {
        Command(bytes)
    }

    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// Of a Fabrics command.
    pub fn fabrics_type(&self) -> u8 {
        self.0[4]
    }

    pub fn identifier(&self) -> u16 {
        u16::from_le_bytes(self.bytes(2))
    }

    pub fn namespace(&self) -> u32 {
        self.dword(1)
    }

    /// A dword, as the specification counts them.
    pub fn dword(&self, number: usize) -> u32 {
        u32::from_le_bytes(self.bytes(number * 4))
    }

    /// The first block of a read or write (dwords 10 and 11).
    pub fn first_block(&self) -> u64 {
        u64::from_le_bytes(self.bytes(40))
    }

    /// Their number: the field counts from 0.
    pub fn blocks(&self) -> u64 {
        u64::from(u16::from_le_bytes(self.bytes(48))) + 1
    }

    /// Where the data is; `None` if it is described in a way that this target has not offered.
    pub fn data(&self) -> Option<Data> {
        match self.0[39] {
            // A data block by its offset into the capsule, of which the entry is not a part.
            0x01 => Some(Data::InCapsule {
                offset: usize::try_from(u64::from_le_bytes(self.bytes(24))).ok()?,
                length: self.dword(8) as usize,
            }),
            // A keyed data block; subtype 0xF asks for the key to be invalidated.
            kind @ (0x40 | 0x4F) => {
                let [low, middle, high] = self.bytes(32);
                Some(Data::Keyed {
                    address: u64::from_le_bytes(self.bytes(24)),
                    length: u32::from_le_bytes([low, middle, high, 0]) as usize,
                    key: u32::from_le_bytes(self.bytes(35)),
                    invalidate: kind == 0x4F,
                })
            }
            _ => None,
        }
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0[at..].first_chunk().copied().unwrap_or([0; N])
    }
}

/// Where the data of a command is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// Behind the submission queue entry.
    InCapsule { offset: usize, length: usize },
    /// In the host's memory.
    Keyed { address: u64, length: usize, key: u32, invalidate: bool },
}

/// A status, without the phase bit that only queues in memory have (Base 2.0, 3.3.3.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(u16);

impl Status {
    pub const SUCCESS: Status = Status(0);
    pub const INVALID_OPCODE: Status = Status(DO_NOT_RETRY | 0x01);
    pub const INVALID_FIELD: Status = Status(DO_NOT_RETRY | 0x02);
    pub const DATA_TRANSFER_ERROR: Status = Status(0x04);
    pub const INVALID_NAMESPACE: Status = Status(DO_NOT_RETRY | 0x0B);
    pub const COMMAND_SEQUENCE: Status = Status(DO_NOT_RETRY | 0x0C);
    pub const OUT_OF_RANGE: Status = Status(DO_NOT_RETRY | 0x80);
    /// Of Connect (NVMe over Fabrics 1.1, 3.3).
    pub const CONNECT_INVALID_PARAMETERS: Status = Status(DO_NOT_RETRY | 0x0182);
}

const DO_NOT_RETRY: u16 = 0x4000;

/// What a command has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub status: Status,
    /// The first eight bytes of the response, which some commands return values in.
    pub value: u64,
}

impl Outcome {
    pub const SUCCESS: Outcome = Outcome::value(0);

    pub const fn value(value: u64) -> Outcome {
        Outcome { status: Status::SUCCESS, value }
    }

    /// The response to a command. `head` is how far the submission queue has been read.
    pub fn response(self, head: u16, identifier: u16) -> [u8; RESPONSE] {
        let mut response = [0; RESPONSE];
        response[..8].copy_from_slice(&self.value.to_le_bytes());
        response[8..10].copy_from_slice(&head.to_le_bytes());
        response[12..14].copy_from_slice(&identifier.to_le_bytes());
        response[14..16].copy_from_slice(&(self.status.0 << 1).to_le_bytes());
        response
    }
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Outcome {
        Outcome { status, value: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(fields: &[(usize, &[u8])]) -> Command {
        let mut entry = [0; ENTRY];
        for (at, bytes) in fields {
            entry[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        Command::new(entry)
    }

    #[test]
    fn a_keyed_block_has_an_address_24_bits_of_length_and_a_key() {
        let keyed = |kind| {
            command(&[(24, &[1, 2, 3, 4, 5, 6, 7, 8]), (32, &[0, 0x10, 2]), (35, &[9, 8, 7, 6, kind])]).data()
        };
        let data = |invalidate| {
            Some(Data::Keyed {
                address: 0x0807_0605_0403_0201,
                length: 0x2_1000,
                key: 0x0607_0809,
                invalidate,
            })
        };
        assert_eq!((keyed(0x40), keyed(0x4F)), (data(false), data(true)));
    }

    #[test]
    fn data_in_the_capsule_has_an_offset_and_a_length() {
        let found = command(&[(24, &[16]), (32, &[0, 4]), (39, &[1])]).data();
        assert_eq!(found, Some(Data::InCapsule { offset: 16, length: 1024 }));
    }

    #[test]
    fn other_descriptors_are_not_understood() {
        for kind in [0x00, 0x02, 0x10, 0x41, 0x5A, 0xFF] {
            assert_eq!(command(&[(39, &[kind])]).data(), None);
        }
    }

    #[test]
    fn a_response_names_its_command_and_leaves_the_phase_bit_alone() {
        let response = Outcome::from(Status::OUT_OF_RANGE).response(3, 0x1234);
        assert_eq!(response, [0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0x34, 0x12, 0x00, 0x81]);
    }
}
