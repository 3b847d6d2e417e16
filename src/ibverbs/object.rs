//! The live objects, and how to tell them from anything else that a caller may pass.
//!
//! The kernel looks up the handle of an object among those of the open file, and a wrong one is an error. Here [`find`]
//! looks up the address, and compares the context and the handle that C shows with those the object was given. Nothing
//! is read before the address has been found, so objects that never existed, or no longer do, are refused too. An
//! object of a parent process is EIO.
//!
//! On the data path the object's own seal is checked ([`live`]); there a pointer to anything but an object of ours is
//! as fatal as with any other provider. Both check the process before they take locks: the parent's threads may have
//! held any of them at the fork.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Display, Formatter};
use std::mem::MaybeUninit;

use softrnic_check::ObjectKind;
use softrnic_nic::device::Process;

use crate::check;
use crate::errno::{Errno, told};
use crate::ffi_boundary::borrow;
use crate::registry::{Registry, registry};
use crate::reserve;

/// Kinds of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Context,
    Pd,
    Td,
    Mr,
    Mw,
    Cq,
    Channel,
    Srq,
    Qp,
    Ah,
    Xrcd,
    Dm,
    Buffer,
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Context => "context",
            Kind::Pd => "protection domain",
            Kind::Td => "thread domain",
            Kind::Mr => "memory region",
            Kind::Mw => "memory window",
            Kind::Cq => "completion queue",
            Kind::Channel => "completion channel",
            Kind::Srq => "SRQ",
            Kind::Qp => "QP",
            Kind::Ah => "address handle",
            Kind::Xrcd => "XRC domain",
            Kind::Dm => "device memory",
            Kind::Buffer => "buffer",
        })
    }
}

/// The identity of an object in its public fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shows {
    pub context: usize,
    pub handle: u32,
}

/// An object that C has a pointer to.
///
/// # Safety
/// The type is `repr(C)` and begins with its `C`.
pub(crate) unsafe trait Object: Sized {
    const KIND: Kind;
    type C;
    /// Whether a child may use its ancestors' objects.
    const INHERITED: bool = false;

    fn seal(&self) -> &Seal;

    /// Its public fields now. The application can write there.
    fn shows(&self) -> Shows;
}

/// In each object: its kind, and the process that created it.
pub(crate) struct Seal(u64);

impl Seal {
    pub fn new(kind: Kind) -> Seal {
        Seal(Seal::of(kind, Process::current()))
    }

    const fn mark(kind: Kind) -> u32 {
        0x50F7_4100 | kind as u32
    }

    #[inline]
    fn of(kind: Kind, process: Process) -> u64 {
        u64::from(Seal::mark(kind)) << 32 | u64::from(process.number())
    }

    #[inline]
    fn check(&self, kind: Kind) -> Result<(), Errno> {
        if self.0 == Seal::of(kind, Process::current()) { Ok(()) } else { Err(self.broken(kind)) }
    }

    #[cold]
    fn broken(&self, kind: Kind) -> Errno {
        if (self.0 >> 32) as u32 == Seal::mark(kind) { Errno::IO } else { Errno::INVAL }
    }
}

/// The live objects by address; `None` while one is being created.
#[derive(Default)]
pub(crate) struct Objects(HashMap<usize, Option<Entry>>);

struct Entry {
    kind: Kind,
    process: Process,
    shows: Shows,
}

impl Objects {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The objects of this process, by the names of their structures, and the addresses of the CQs among them.
    pub fn left(&self) -> (BTreeMap<String, u64>, Vec<usize>) {
        let (mut left, mut cqs) = (BTreeMap::new(), Vec::new());
        let process = Process::current();
        for (address, entry) in &self.0 {
            let Some(entry) = entry.as_ref().filter(|entry| entry.process == process) else { continue };
            let kind = check::kind(entry.kind);
            if kind == ObjectKind::Other {
                continue;
            }
            *left.entry(kind.structure().to_owned()).or_default() += 1;
            if entry.kind == Kind::Cq {
                cqs.push(*address);
            }
        }
        (left, cqs)
    }
}

/// Memory for an object that is about to be created. A verb reserves it before anything else, so nothing has to be
/// undone later for lack of memory.
pub(crate) struct ObjectSlot<O: Object>(Option<Box<MaybeUninit<O>>>);

impl<O: Object> ObjectSlot<O> {
    /// # Errors
    /// ENOMEM.
    pub fn new() -> Result<ObjectSlot<O>, Errno> {
        const { assert!(size_of::<O>() <= reserve::BLOCK) };
        reserve::check()?;
        let memory = Box::<O>::new_uninit();
        registry().make_room(memory.as_ptr().addr(), O::KIND)?;
        Ok(ObjectSlot(Some(memory)))
    }

    /// The address of the future object.
    pub fn address(&self) -> *mut O::C {
        self.0.as_ref().map_or(std::ptr::null_mut(), |memory| memory.as_ptr().cast_mut().cast())
    }

    /// Registers an object, and passes it to C.
    pub fn publish(mut self, object: O) -> *mut O::C {
        let Some(memory) = self.0.take() else { return std::ptr::null_mut() };
        let object = Box::write(memory, object);
        let entry = Entry { kind: O::KIND, process: Process::current(), shows: object.shows() };
        let object = Box::into_raw(object);
        // Not `insert`, which reserves room before it looks.
        if let Some(known) = registry().objects.0.get_mut(&object.addr()) {
            *known = Some(entry);
        }
        if check::is_on() {
            // SAFETY: just made, and nobody else has its address.
            check::made(unsafe { &*object });
        }
        object.cast()
    }
}

impl<O: Object> Drop for ObjectSlot<O> {
    fn drop(&mut self) {
        if let Some(memory) = &self.0 {
            registry().objects.0.remove(&memory.as_ptr().addr());
        }
    }
}

impl Registry {
    /// Reserves room in every table in which an object of this kind, at this address, will have an entry. An object has
    /// at most one entry in each, so no table ever holds more than there are objects.
    fn make_room(&mut self, address: usize, kind: Kind) -> Result<(), Errno> {
        let tables = &mut *self;
        tables.objects.0.try_reserve(1)?;
        let count = tables.objects.0.len() + 1;
        match kind {
            Kind::Cq | Kind::Qp | Kind::Srq => {
                tables.targets.try_reserve(count - tables.targets.len().min(count))?
            }
            Kind::Pd | Kind::Mr | Kind::Dm => {
                tables.exports.try_reserve(count - tables.exports.len().min(count))?
            }
            _ => {}
        }
        tables.objects.0.insert(address, None);
        Ok(())
    }
}

/// The object that a caller names, for every verb outside the data path.
///
/// # Errors
/// EINVAL if it is not such an object, EIO if it belongs to another process.
pub(crate) fn find<'a, O: Object>(object: *mut O::C) -> Result<&'a O, Errno> {
    if object.is_null() {
        return Err(Errno::invalid(format_args!("the {}'s pointer is null", O::KIND)));
    }
    let process = Process::current();
    if !process.is_in_order() {
        return Err(Errno::IO);
    }
    let shows = match registry().objects.0.get(&object.addr()).and_then(Option::as_ref) {
        Some(entry) if entry.kind == O::KIND && (entry.process == process || O::INHERITED) => entry.shows,
        Some(entry) if entry.kind == O::KIND => {
            told(&format_args!("the {} belongs to the parent process", O::KIND));
            return Err(Errno::IO);
        }
        _ => return Err(Errno::invalid(format_args!("there is no such {}", O::KIND))),
    };
    // SAFETY: in the table as a live object of this kind; the application does not destroy an object that another of
    // its threads uses.
    let object = unsafe { &*object.cast::<O>() };
    if object.shows() != shows {
        return Err(Errno::invalid(format_args!(
            "the program has changed the {}'s handle or context",
            O::KIND
        )));
    }
    Ok(object)
}

/// Like [`find`], for a verb that destroys the object: ENOENT if it is not such an object.
///
/// # Errors
/// As above.
pub(crate) fn find_last<'a, O: Object>(object: *mut O::C) -> Result<&'a O, Errno> {
    if check::is_on() {
        check::about(object.addr());
    }
    find(object).map_err(
        |errno| {
            if errno == Errno::INVAL && !object.is_null() { Errno::NOENT } else { errno }
        },
    )
}

/// The object that a caller of the data path names.
///
/// # Safety
/// The pointer is null, or that of an object of ours that stays for `'a`. An object of another kind is recognised by
/// its seal, unless it is so small that it ends before the offset of `O`'s seal.
///
/// # Errors
/// EINVAL for null and objects of another kind, EIO for one of another process.
#[inline]
pub(crate) unsafe fn live<'a, O: Object>(object: *mut O::C) -> Result<&'a O, Errno> {
    // SAFETY: null or an object of ours, as the caller promises; the object begins with its public part ([`Object`]).
    let object: &O = unsafe { borrow(object.cast())? };
    object.seal().check(O::KIND)?;
    Ok(object)
}

/// Takes an object back from C, for which it no longer exists.
///
/// # Safety
/// [`find`] has found it as an `O`, and it is no longer used.
pub(crate) unsafe fn retire<O: Object>(object: *mut O::C) -> Box<O> {
    registry().objects.0.remove(&object.addr());
    if check::is_on() {
        check::destroyed(object.addr());
    }
    // SAFETY: [`ObjectSlot::publish`] made the pointer from a box of this type; it is no longer registered, so this
    // happens once.
    unsafe { Box::from_raw(object.cast()) }
}

/// Implements [`Object`] for a struct with `ibv`, what C sees, and `seal`.
macro_rules! object {
    ($type:ty, $kind:ident, $c:ty $(, $handle:ident)?) => {
        // SAFETY: each type that this is used for is `repr(C)` with `ibv` as its first field.
        unsafe impl $crate::object::Object for $type {
            const KIND: $crate::object::Kind = $crate::object::Kind::$kind;
            type C = $c;

            #[inline]
            fn seal(&self) -> &$crate::object::Seal {
                &self.seal
            }

            fn shows(&self) -> $crate::object::Shows {
                let shown: *const $c = self.ibv.get().cast();
                // SAFETY: integers in a live object. The application may have changed them, but not during a verb.
                unsafe { $crate::object::Shows { context: (*shown).context.addr(), handle: 0 $(+ (*shown).$handle)? } }
            }
        }
    };
}

pub(crate) use object;
