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

use softrnic_nic::device::Process;

use crate::errno::Errno;
use crate::guard::borrow;
use crate::registry::registry;

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

/// What is known of each object, by its address.
#[derive(Default)]
pub(crate) struct Objects(HashMap<usize, Entry>);

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

/// Makes an object known, and leaves it to C.
pub(crate) fn publish<O: Object>(object: Box<O>) -> *mut O::C {
    let entry = Entry { kind: O::KIND, process: Process::current(), shows: object.shows() };
    let object = Box::into_raw(object);
    registry().objects.0.insert(object.addr(), entry);
    object.cast()
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
    let shows = match registry().objects.0.get(&object.addr()) {
        Some(entry) if entry.kind == O::KIND && (entry.process == process || O::INHERITED) => entry.shows,
        Some(entry) if entry.kind == O::KIND => return Err(Errno::IO),
        _ => return Err(refused(O::KIND, "there is no such object")),
    };
    // SAFETY: a live object of this type; callers do not destroy what they use in another thread.
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
/// The pointer is null or that of an object of ours.
///
/// # Errors
/// EINVAL for null and objects of another kind, EIO for one of another process.
#[inline]
pub(crate) unsafe fn live<'a, O: Object>(object: *mut O::C) -> Result<&'a O, Errno> {
    // SAFETY: the object, with which its public part begins.
    let object: &O = unsafe { borrow(object.cast())? };
    object.seal().check(O::KIND)?;
    Ok(object)
}

/// Takes an object back from C, which has no such object from now on.
///
/// # Safety
/// [`find`] has found it, and nobody uses it any more.
pub(crate) unsafe fn retire<O: Object>(object: *mut O::C) -> Box<O> {
    registry().objects.0.remove(&object.addr());
    // SAFETY: `publish` had it from a box.
    unsafe { Box::from_raw(object.cast()) }
}

/// Implements [`Object`] for a struct with `ibv`, what C sees, and `seal`.
macro_rules! object {
    ($type:ty, $kind:ident, $c:ty $(, $handle:ident)?) => {
        // SAFETY: `repr(C)`, and what C sees comes first.
        unsafe impl $crate::object::Object for $type {
            const KIND: $crate::object::Kind = $crate::object::Kind::$kind;
            type C = $c;

            #[inline]
            fn seal(&self) -> &$crate::object::Seal {
                &self.seal
            }

            fn shows(&self) -> $crate::object::Shows {
                let shown: *const $c = self.ibv.get().cast();
                // SAFETY: plain numbers in a live object.
                unsafe { $crate::object::Shows { context: (*shown).context.addr(), handle: 0 $(+ (*shown).$handle)? } }
            }
        }
    };
}

pub(crate) use object;
