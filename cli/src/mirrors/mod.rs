//! `heliostat mirrors`: the flags and the output of the KIP's `kafka-cluster-mirrors.sh`.

mod args;
mod run;
mod tables;
mod wait;

pub(crate) use args::MirrorsArgs;
pub(crate) use run::run;
