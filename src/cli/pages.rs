//! `softrnic completions` and `softrnic man`: what shells and `man` read, made from the command's own help.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::{Doing, Result};
use crate::output;

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  eval \"$(softrnic completions bash)\"                                      for this shell
  softrnic completions bash > ~/.local/share/bash-completion/completions/softrnic
  softrnic completions fish > ~/.config/fish/completions/softrnic.fish
  softrnic completions zsh > \"${fpath[1]}/_softrnic\"";

const MAN_EXAMPLES: &str = "\
Examples:
  softrnic man ~/.local/share/man/man1
  man softrnic-run";

/// Print the completions of this command for a shell
#[derive(Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Write the manual pages, one for each subcommand
#[derive(Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct ManArgs {
    /// The directory to write them to; it is created if it does not exist
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

pub fn completions(mut command: Command, args: CompletionsArgs) -> Result {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    output::write_bytes(&script);
    Ok(())
}

pub fn man(command: Command, args: ManArgs) -> Result {
    let directory = &args.directory;
    let written = fs::create_dir_all(directory)
        // The subcommand `help` would have a page for each subcommand again.
        .and_then(|()| clap_mangen::generate_to(command.disable_help_subcommand(true), directory));
    written.doing(|| format!("cannot write to {}", directory.display()))
}
