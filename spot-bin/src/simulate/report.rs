//! A simulation as one page for a browser: no script, nothing from elsewhere.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use minijinja::{AutoEscape, Environment, HtmlEscape, UndefinedBehavior, Value};
use serde::Serialize;

use super::film::{Frame, Lane};
use super::recorder::Phase;
use super::timeline::{self, clock, several};
use super::{Costs, Kept, Story};
use crate::cost::{self, Bill, Sum, dollars};

const TEMPLATE: &str = include_str!("report.html");

/// How wide drawings are, in units of their own.
const WIDTH: f64 = 1000.0;
/// How high charts are.
const HEIGHT: f64 = 100.0;
/// How high the bar of a node is.
const BAR: f64 = 15.0;
/// More nodes than this are not drawn.
const LANES: usize = 200;
/// More lines than this are only in the other formats.
const LINES: usize = 500;
/// At how many moments the time is written below.
const TICKS: u32 = 5;

#[derive(Debug, Serialize)]
struct Page<'s> {
    outcome: &'static str,
    detail: &'s str,
    cast: String,
    scenario: &'static str,
    seed: u64,
    start: String,
    cards: Vec<Card>,
    ticks: Vec<String>,
    charts: Vec<Chart>,
    legend: Vec<Key>,
    lanes: Vec<Drawn>,
    hidden_lanes: usize,
    bill: Vec<Line>,
    prices: String,
    kept: Vec<Reason<'s>>,
    hidden_kept: usize,
    events: Vec<Event<'s>>,
    hidden_events: usize,
    assumptions: &'s [String],
}

#[derive(Debug, Serialize)]
struct Card {
    label: &'static str,
    value: String,
}

#[derive(Debug, Serialize)]
struct Chart {
    title: &'static str,
    scale: String,
    areas: Vec<Area>,
}

#[derive(Debug, Serialize)]
struct Area {
    kind: &'static str,
    path: String,
}

#[derive(Debug, Serialize)]
struct Key {
    kind: &'static str,
    text: &'static str,
}

#[derive(Debug, Serialize)]
struct Drawn {
    name: String,
    kind: &'static str,
    story: String,
    x: f64,
    width: f64,
    pods: String,
    phases: Vec<Strip>,
}

#[derive(Debug, Serialize)]
struct Strip {
    kind: Phase,
    x: f64,
    width: f64,
}

#[derive(Debug, Serialize)]
struct Line {
    pool: String,
    numbers: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Reason<'s> {
    node: &'s str,
    why: &'s str,
    remedy: &'static str,
}

#[derive(Debug, Serialize)]
struct Event<'s> {
    at: String,
    node: &'s str,
    words: String,
}

/// The page.
pub(super) fn html(story: &Story) -> anyhow::Result<String> {
    let mut engine = Environment::new();
    engine.set_auto_escape_callback(|_| AutoEscape::Html);
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.add_filter("code", code);
    engine.render_str(TEMPLATE, Page::of(story)).context("can't write the page")
}

/// What stands between backticks, as code.
fn code(text: &str) -> Value {
    let parts = text.split('`').map(|part| HtmlEscape(part).to_string()).enumerate();
    let tagged = parts.map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part });
    Value::from_safe_string(tagged.collect())
}

impl<'s> Page<'s> {
    fn of(story: &'s Story) -> Self {
        let scale = Scale::of(story.lasted);
        let (lanes, hidden_lanes) = lanes(story, scale);
        let (kept, hidden_kept) = kept(&story.kept);
        let (events, hidden_events) = events(story);
        Self {
            outcome: story.outcome,
            detail: &story.detail,
            cast: timeline::cast(&story.cast),
            scenario: story.scenario.as_str(),
            seed: story.seed,
            start: story.start.strftime("%F %R UTC").to_string(),
            cards: cards(story),
            ticks: (0..TICKS).map(|tick| clock(scale.end * tick / (TICKS - 1))).collect(),
            charts: charts(story, scale),
            legend: [
                ("on-demand", "on-demand node"),
                ("spot", "spot node"),
                ("other", "node of another kind"),
                ("drains", "its pods are evicted"),
                ("detaches", "load balancers take it out"),
                ("ends", "its machine ends"),
            ]
            .map(|(kind, text)| Key { kind, text })
            .into(),
            lanes,
            hidden_lanes,
            bill: story.costs.iter().flat_map(bill).collect(),
            prices: story.costs.as_ref().map(prices).unwrap_or_default(),
            kept,
            hidden_kept,
            events,
            hidden_events,
            assumptions: &story.assumptions,
        }
    }
}

/// From time to place.
#[derive(Clone, Copy, Debug)]
struct Scale {
    end: Duration,
}

impl Scale {
    /// Drawn is a little more than what there was to see: what comes at the last moment is seen too.
    fn of(lasted: Duration) -> Self {
        Self { end: (lasted + lasted / 40).max(Duration::from_mins(1)) }
    }

    /// Where a moment is drawn, to a tenth of a unit.
    fn x(self, at: Duration) -> f64 {
        tenth((at.as_secs_f64() / self.end.as_secs_f64()).min(1.0) * WIDTH)
    }
}

fn tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn cards(story: &Story) -> Vec<Card> {
    let card = |label, value| Card { label, value };
    let mut cards = vec![
        card("Nodes retired", format!("{} of {}", story.retired, story.cast.on_demand)),
        card("Pods moved", story.evictions.to_string()),
        card("Evictions refused at first", story.refused_evictions.to_string()),
        card("Virtual time", clock(story.lasted)),
        card("Nodes that stay, for a reason", story.kept.len().to_string()),
    ];
    if let Some(costs) = &story.costs {
        cards.push(card("A month", costs.sums().join(" → ")));
    }
    cards
}

fn charts(story: &Story, scale: Scale) -> Vec<Chart> {
    let frames = thinned(&story.film.frames, scale);
    let chart = |title, kinds: &[&'static str], heights: &dyn Fn(&Frame) -> Vec<f64>, unit: &dyn Fn(f64) -> String| {
        let most = frames.iter().map(|frame| heights(frame).iter().sum()).fold(0.0, f64::max);
        let area = |(upto, kind): (usize, &&'static str)| {
            let sum = |heights: Vec<f64>, count: usize| heights.iter().take(count).sum::<f64>();
            let band = |frame: &Frame| (sum(heights(frame), upto), sum(heights(frame), upto + 1));
            Area { kind, path: area(&frames, scale, most, band) }
        };
        Chart { title, scale: unit(most), areas: kinds.iter().enumerate().map(area).collect() }
    };
    let mut charts = vec![
        chart(
            "Nodes, by class",
            &["spot", "on-demand"],
            &|frame| vec![count(frame.spot), count(frame.on_demand)],
            &|most| format!("{most} at most"),
        ),
        chart("Pods that do not serve", &["waiting"], &|frame| vec![count(frame.waiting)], &|most| {
            format!("{most} of {} at most", frames.first().map_or(0, |first| first.ready + first.waiting))
        }),
    ];
    if story.costs.is_some() {
        charts.push(chart("Costs an hour", &["cost"], &|frame| vec![frame.dollars], &|most| {
            format!("{} at most", dollars(most))
        }));
    }
    charts
}

/// As many moments as can be told apart: of those that can't, the worst and the last.
fn thinned(frames: &[Frame], scale: Scale) -> Vec<Frame> {
    let mut thinned: Vec<Frame> = Vec::new();
    for column in frames.chunk_by(|a, b| scale.x(a.at).floor().total_cmp(&scale.x(b.at).floor()).is_eq()) {
        let worst = column.iter().enumerate().max_by_key(|(at, frame)| (frame.waiting, Reverse(*at)));
        thinned.extend(worst.map(|(_, frame)| frame));
        thinned.extend(column.last().filter(|last| worst.is_none_or(|(_, worst)| worst.at != last.at)));
    }
    thinned
}

/// A band in steps, from its lower edge to its upper one.
fn area(frames: &[Frame], scale: Scale, most: f64, band: impl Fn(&Frame) -> (f64, f64)) -> String {
    let y = |height: f64| tenth(HEIGHT - if most > 0.0 { height / most * HEIGHT } else { 0.0 });
    let ends = frames.iter().skip(1).map(|frame| scale.x(frame.at)).chain([WIDTH]);
    let steps: Vec<_> = frames.iter().zip(ends).map(|(frame, end)| (scale.x(frame.at), end, band(frame))).collect();
    let upper = steps.iter().flat_map(|(x, end, (_, high))| [(*x, y(*high)), (*end, y(*high))]);
    let lower = steps.iter().rev().flat_map(|(x, end, (low, _))| [(*end, y(*low)), (*x, y(*low))]);
    path(upper.chain(lower))
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        let command = if path.is_empty() { 'M' } else { 'L' };
        // Writing into a String has no way to fail.
        let _written = write!(path, "{command}{x} {y}");
    }
    if !path.is_empty() {
        path.push('Z');
    }
    path
}

/// The nodes to which something happens first, in the order in which it does.
fn lanes(story: &Story, scale: Scale) -> (Vec<Drawn>, usize) {
    let lanes = &story.film.lanes;
    let first = |lane: &Lane| {
        let phase = story.phases.get(&lane.name).and_then(|phases| phases.first()).map(|(at, _)| *at);
        phase.or_else(|| (lane.joined > Duration::ZERO).then_some(lane.joined)).or(lane.gone)
    };
    let mut order: Vec<_> = lanes.iter().collect();
    order.sort_by_key(|lane| (first(lane).unwrap_or(Duration::MAX), lane.kind));
    let most = lanes.iter().flat_map(|lane| lane.pods.iter().map(|(_, pods)| *pods)).max().unwrap_or_default();
    let drawn = order.into_iter().take(LANES).map(|lane| drawn(story, lane, most, scale)).collect();
    (drawn, lanes.len().saturating_sub(LANES))
}

fn drawn(story: &Story, lane: &Lane, most: usize, scale: Scale) -> Drawn {
    let end = lane.gone.unwrap_or(scale.end);
    let y = |pods: usize| tenth(BAR - if most > 0 { count(pods) / count(most) * BAR } else { 0.0 });
    let steps = lane.pods.iter().filter(|(at, _)| *at <= end);
    let ends = lane.pods.iter().skip(1).map(|(at, _)| (*at).min(end)).chain([end]);
    let top = steps.zip(ends).flat_map(|((at, pods), end)| [(scale.x(*at), y(*pods)), (scale.x(end), y(*pods))]);
    let pods = path([(scale.x(lane.joined), BAR)].into_iter().chain(top).chain([(scale.x(end), BAR)]));
    let changes = story.phases.get(&lane.name).map(Vec::as_slice).unwrap_or_default();
    let untils = changes.iter().skip(1).map(|(at, _)| *at).chain([end]);
    let strips = changes.iter().zip(untils).filter_map(|((at, phase), until)| {
        let (x, until) = (scale.x(*at), scale.x(until.min(end)));
        Some(Strip { kind: (*phase)?, x, width: tenth((until - x).max(0.0)) })
    });
    let came = if lane.joined > Duration::ZERO { format!(", from {}", clock(lane.joined)) } else { String::new() };
    let went = lane.gone.map(|gone| format!(", gone at {}", clock(gone))).unwrap_or_default();
    let x = scale.x(lane.joined);
    Drawn {
        name: lane.name.to_string(),
        kind: lane.kind.as_str(),
        story: format!("{}, {}{came}{went}", lane.name, lane.kind.as_str()),
        x,
        width: tenth((scale.x(end) - x).max(0.0)),
        pods,
        phases: strips.collect(),
    }
}

fn bill(costs: &Costs) -> Vec<Line> {
    let Costs { before, after } = costs;
    let line = |pool: &str, before: &Sum, after: &Sum| {
        let amount = |sum: &Sum| if sum.is_priced() { dollars(sum.monthly.0) } else { "-".to_owned() };
        let of = |sum: &Sum| [sum.on_demand.to_string(), sum.spot.to_string(), amount(sum)];
        Line { pool: pool.to_owned(), numbers: [before, after].into_iter().flat_map(of).collect() }
    };
    let mut pools: Vec<&String> = before.pools.keys().chain(after.pools.keys()).collect();
    pools.sort();
    pools.dedup();
    let of = |bill: &Bill, pool: &String| bill.pools.get(pool).cloned().unwrap_or_default();
    let lines = pools.iter().map(|pool| line(pool, &of(before, pool), &of(after, pool)));
    lines.chain([line("total", &before.total, &after.total)]).collect()
}

/// Where prices come from, and what they leave out.
fn prices(costs: &Costs) -> String {
    let unknown = match (costs.before.total.unpriced, costs.after.total.unpriced) {
        (0, 0) => String::new(),
        (before, after) => {
            format!(
                " Left out, without a known price: {} before, {} after.",
                several(before, "node"),
                several(after, "node")
            )
        }
    };
    cost::built_in() + &unknown
}

fn kept(kept: &[Kept]) -> (Vec<Reason<'_>>, usize) {
    let all = || {
        kept.iter().flat_map(|kept| {
            kept.reasons.iter().map(|because| Reason { node: &kept.node, why: &because.detail, remedy: because.remedy })
        })
    };
    (all().take(LINES).collect(), all().count().saturating_sub(LINES))
}

fn events(story: &Story) -> (Vec<Event<'_>>, usize) {
    let all = || {
        story.timeline.iter().filter_map(|entry| {
            let node = entry.what.node().map(String::as_str).unwrap_or_default();
            Some(Event { at: clock(entry.at), node, words: timeline::words(&entry.what)? })
        })
    };
    (all().take(LINES).collect(), all().count().saturating_sub(LINES))
}

#[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 nodes or pods")]
const fn count(count: usize) -> f64 {
    count as f64
}
