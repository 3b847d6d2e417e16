//! Messages through two engines on one thread: all of it, and each part by itself.

use std::time::{Duration, Instant};

use criterion::{Bencher, Criterion, Throughput, criterion_group, criterion_main};
use softrnic_bench::{Duo, Work};

/// Messages of one transfer, so that windows and acknowledgements are those of a stream.
const STREAM: usize = 64;

/// Messages that a part is given at a time.
const BURST: usize = 16;

/// Posting, requester, responder, completer, and taking completions.
fn whole(c: &mut Criterion) {
    let mut group = c.benchmark_group("message");
    let sizes = [64, 65_536].into_iter();
    for work in sizes.flat_map(|size| [Work::Write(size), Work::Send(size), Work::Read(size)]) {
        let mut duo = warm(work);
        group.throughput(Throughput::Elements(STREAM as u64));
        group.bench_function(format!("{work:?}"), |b| b.iter(|| duo.transfer(work, STREAM)));
    }
    group.finish();
}

/// One SEND and the ACK of the one before, there or back.
fn ping(c: &mut Criterion) {
    let mut duo = Duo::new();
    duo.ping(8, 2 * STREAM);
    let mut group = c.benchmark_group("ping");
    group.throughput(Throughput::Elements(STREAM as u64));
    group.bench_function("Send(8)", |b| b.iter(|| duo.ping(8, STREAM)));
    group.finish();
}

fn parts(c: &mut Criterion) {
    let mut group = c.benchmark_group("part");
    group.throughput(Throughput::Elements(BURST as u64));
    for work in [Work::Write(4096), Work::Write(64), Work::Send(64), Work::Read(4096)] {
        group.bench_function(format!("post {work:?}"), |b| {
            part(b, work, |_| {}, |duo| duo.post(work, BURST));
        });
        group.bench_function(format!("requester {work:?}"), |b| {
            part(b, work, |duo| duo.post(work, BURST), |duo| duo.step(0));
        });
        let sent = |duo: &mut Duo| {
            duo.post(work, BURST);
            duo.step(0);
        };
        group.bench_function(format!("responder {work:?}"), |b| part(b, work, sent, |duo| duo.step(1)));
        let answered = |duo: &mut Duo| {
            sent(duo);
            duo.step(1);
        };
        group.bench_function(format!("completer {work:?}"), |b| part(b, work, answered, |duo| duo.step(0)));
    }
    group.finish();
}

/// Times `timed` after `before`, and lets everything come to rest in between.
fn part(b: &mut Bencher<'_>, work: Work, before: impl Fn(&mut Duo), timed: impl Fn(&mut Duo)) {
    let mut duo = warm(work);
    b.iter_custom(|rounds| {
        let mut spent = Duration::ZERO;
        for _ in 0..rounds {
            before(&mut duo);
            let start = Instant::now();
            timed(&mut duo);
            spent += start.elapsed();
            duo.run();
        }
        spent
    });
}

fn warm(work: Work) -> Duo {
    let mut duo = Duo::new();
    duo.transfer(work, 2 * STREAM);
    duo
}

criterion_group!(benches, whole, ping, parts);
criterion_main!(benches);
