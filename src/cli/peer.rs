//! `softrnic peer`, hidden: the second process of demo and bench.

use clap::{Args, ValueEnum};

use crate::failure::Result;
use crate::pair::Line;
use crate::{bench, demo};

#[derive(Args)]
pub struct PeerArgs {
    role: Role,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Demo,
    Bench,
}

pub fn run(args: PeerArgs) -> Result {
    let mut line = Line::to_parent();
    let outcome = match args.role {
        Role::Demo => demo::server::run(&mut line),
        Role::Bench => bench::target::run(&mut line),
    };
    match outcome {
        Ok(()) => Ok(()),
        // The first process reports it to the user.
        Err(failure) if line.fail(&failure).is_ok() => std::process::exit(1),
        Err(failure) => Err(failure),
    }
}
