//! `softrnic peer`, hidden: the second process of demo and bench.

use clap::{Args, ValueEnum};

use crate::demo;
use crate::failure::Result;
use crate::pair::Line;

#[derive(Args)]
pub struct PeerArgs {
    role: Role,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Demo,
}

pub fn run(args: PeerArgs) -> Result {
    let mut line = Line::to_parent();
    let outcome = match args.role {
        Role::Demo => demo::server::run(&mut line),
    };
    match outcome {
        Ok(()) => Ok(()),
        // The first process tells people.
        Err(failure) if line.fail(&failure).is_ok() => std::process::exit(1),
        Err(failure) => Err(failure),
    }
}
