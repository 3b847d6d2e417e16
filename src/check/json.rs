//! Reports for machines.

use serde_json::{Value, json};

use crate::finding::{Finding, Summary};
use crate::text::Symbols;

impl Finding {
    /// The report as JSON.
    pub fn json(&self, symbols: &dyn Symbols) -> Value {
        let calls: Vec<Value> = self
            .parts
            .iter()
            .map(|part| {
                let frames: Vec<Value> = symbols
                    .frames(part.trace)
                    .into_iter()
                    .map(|frame| json!({ "function": frame.function, "place": frame.place }))
                    .collect();
                json!({ "what": part.says, "stack": frames })
            })
            .collect();
        json!({
            "kind": self.kind.name(),
            "what": self.what,
            "calls": calls,
            "rule": self.kind.rule(),
            "cause": self.kind.cause(),
        })
    }
}

impl Summary {
    /// The summary as JSON.
    pub fn json(&self) -> Value {
        let kinds: serde_json::Map<String, Value> = self
            .kinds
            .iter()
            .map(|(kind, (count, places))| {
                (kind.name().to_owned(), json!({ "errors": count, "places": places }))
            })
            .collect();
        json!({
            "errors": self.errors(),
            "places": self.places(),
            "suppressed": self.suppressed,
            "kinds": kinds,
            "left": self.left,
        })
    }
}
