//! For tests of the C ABI in Rust: devices on the test's own links.

use std::sync::Arc;

use softrnic_nic::verbs::{Context, DeviceSpec, Running};

use crate::abi::ibv_context;
use crate::context::Ctx;
use crate::device::Device;
use crate::registry::registry;

/// A context on a device that only the test uses; null if it cannot be created.
pub fn context_on(device: Arc<Running>) -> *mut ibv_context {
    let shown: &'static Device = Box::leak(Box::new(Device::new(0, DeviceSpec::default())));
    let context = Context::on(device).map_err(Into::into).and_then(|nic| Ctx::with(shown, nic));
    context.unwrap_or(std::ptr::null_mut())
}

/// Number of objects that C has.
pub fn objects() -> usize {
    registry().objects.len()
}
