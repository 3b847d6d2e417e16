//! The objects that there are, and what tells them from anything else that a caller may pass.
//!
//! The kernel goes by the handle of an object: it looks it up among those of the open file, and a wrong one is an
//! error. Here [`find`] looks the address up, and compares the context and the handle that C shows with those that the
//! object was given. Nothing is read before the address is known, so that what was never made, or is gone, is refused
//! too. An object of a process that has forked is EIO.
//!
//! On the data path the object itself says what it is ([`live`]); there a pointer to anything but an object of ours is
//! as fatal as with any other provider. Both look at the process first and take locks afterwards: the parent's threads
//! may have had any of them.

use std::collections::HashMap;
use std::mem::MaybeUninit;

use softrnic_nic::device::Process;

use crate::errno::Errno;
use crate::guard::borrow;
use crate::registry::{Registry, registry};
use crate::reserve;

/// What an object is.
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

/// What C shows of an object's identity.
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
    /// Whether a child may use those of its forebears.
    const INHERITED: bool = false;

    fn seal(&self) -> &Seal;

    /// What C shows now. The application can write there.
    fn shows(&self) -> Shows;
}

/// In each object: its kind, and the process that made it.
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

/// What is known of each object, by its address; nothing of those that are being made.
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
}

/// Room for an object that is to be made. A verb has it before anything else, so that nothing has to be undone for
/// want of memory later.
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

    /// Where the object will be.
    pub fn address(&self) -> *mut O::C {
        self.0.as_ref().map_or(std::ptr::null_mut(), |memory| memory.as_ptr().cast_mut().cast())
    }

    /// Makes an object known, and leaves it to C.
    pub fn publish(mut self, object: O) -> *mut O::C {
        let Some(memory) = self.0.take() else { return std::ptr::null_mut() };
        let object = Box::write(memory, object);
        let entry = Entry { kind: O::KIND, process: Process::current(), shows: object.shows() };
        let object = Box::into_raw(object);
        // Not `insert`, which makes room before it looks.
        if let Some(known) = registry().objects.0.get_mut(&object.addr()) {
            *known = Some(entry);
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
    /// Takes a place in every table that an object of this kind, at this address, will have an entry in. An object has
    /// one in each at most, so none ever holds more than there are objects.
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

/// The object that a caller means, for every verb that is not of the data path.
///
/// # Errors
/// EINVAL for what is no such object, EIO for one of another process.
pub(crate) fn find<'a, O: Object>(object: *mut O::C) -> Result<&'a O, Errno> {
    if object.is_null() {
        return Err(refused(O::KIND, "the pointer is null"));
    }
    let process = Process::current();
    if !process.is_in_order() {
        return Err(Errno::IO);
    }
    let shows = match registry().objects.0.get(&object.addr()).and_then(Option::as_ref) {
        Some(entry) if entry.kind == O::KIND && (entry.process == process || O::INHERITED) => entry.shows,
        Some(entry) if entry.kind == O::KIND => return Err(Errno::IO),
        _ => return Err(refused(O::KIND, "there is no such object")),
    };
    // SAFETY: the table has it as a live object of this kind; the application destroys nothing that another of its
    // threads uses.
    let object = unsafe { &*object.cast::<O>() };
    if object.shows() != shows {
        return Err(refused(O::KIND, "its handle or context is not what it was made with"));
    }
    Ok(object)
}

/// As [`find`], of a verb that destroys the object: ENOENT for what is no such object.
///
/// # Errors
/// As said.
pub(crate) fn find_last<'a, O: Object>(object: *mut O::C) -> Result<&'a O, Errno> {
    find(object).map_err(
        |errno| {
            if errno == Errno::INVAL && !object.is_null() { Errno::NOENT } else { errno }
        },
    )
}

#[cold]
fn refused(kind: Kind, why: &str) -> Errno {
    tracing::debug!(?kind, why, "a verb is refused");
    Errno::INVAL
}

/// The object that a caller of the data path means.
///
/// # Safety
/// The pointer is null, or that of an object of ours that stays for `'a`. One of another kind is told by its seal, as
/// long as it is not so small that it ends before the place where `O` has one.
///
/// # Errors
/// EINVAL for null and objects of another kind, EIO for one of another process.
#[inline]
pub(crate) unsafe fn live<'a, O: Object>(object: *mut O::C) -> Result<&'a O, Errno> {
    // SAFETY: null or an object of ours, as the caller promises; with its public part begins the object ([`Object`]).
    let object: &O = unsafe { borrow(object.cast())? };
    object.seal().check(O::KIND)?;
    Ok(object)
}

/// Takes an object back from C, which has no such object from now on.
///
/// # Safety
/// [`find`] has found it as an `O`, and nobody uses it any more.
pub(crate) unsafe fn retire<O: Object>(object: *mut O::C) -> Box<O> {
    registry().objects.0.remove(&object.addr());
    // SAFETY: [`ObjectSlot::publish`] made it of a box of this type; it is known no more, so that this happens once.
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
                // SAFETY: numbers in a live object. The application may have changed them, but not during a verb.
                unsafe { $crate::object::Shows { context: (*shown).context.addr(), handle: 0 $(+ (*shown).$handle)? } }
            }
        }
    };
}

pub(crate) use object;
