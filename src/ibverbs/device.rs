//! x
pub(crate) fn fail_all() {}
pub(crate) fn describe_all() {}
