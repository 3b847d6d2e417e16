//! What is left when the program ends.

use crate::checker::{Checker, made};
use crate::finding::Finding;
use crate::{Kind, Object};

impl Checker {
    /// The program ends, and what it has left is of no interest.
    pub fn end_without_leaks(&mut self) {
        self.report_refused();
    }

    /// The program ends. With `each`, every object that is left is a finding of its own.
    pub fn end(&mut self, each: bool) {
        self.report_refused();
        let left: Vec<Object> = self.history.left().into_iter().cloned().collect();
        for object in left {
            *self.summary().left.entry(object.kind.structure()).or_default() += 1;
            if each {
                let what = format!("the {object} was not destroyed").replace(", was", " was");
                let parts = vec![made(&object)];
                self.find(Finding { kind: Kind::LeakedObject, what, parts });
            }
        }
    }
}
