//! A year of daily talk in minutes: users of both languages say things to the long-term role, the clock port jumps from day to
//! day, maintenance runs every night. Afterwards it is known whether sizes stay bounded, tiers act on their days, what lasts is
//! all there, and recall finds it as well as before. Written as JSON and as a chart.

use crate::role::Longterm;
use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write as _, io::Write as _, path::PathBuf, sync::Arc};
use strata_api::{admin::v1 as admin, convert::common::wire_value, longterm::v1 as pb};
use strata_core::{Timestamp, policy::settings::PolicySettings, record::Value, time::DAY};
use strata_runtime::ports::Stopwatch;
use strata_testkit::ManualClock;
use strata_text::embed::{Builtin, Cached, Embedder};

/// Arguments of `year`.
#[derive(clap::Args, Debug, Clone)]
pub struct YearArgs {
    /// Users; every second one speaks Chinese.
    #[arg(long, default_value_t = 50)]
    pub users: usize,
    /// Days.
    #[arg(long, default_value_t = 365)]
    pub days: i64,
    /// Few users and 60 days, for a check of every change.
    #[arg(long)]
    pub short: bool,
    /// Records a user may have in force: low enough that a year reaches it.
    #[arg(long, default_value_t = 250)]
    pub capacity: usize,
    /// Folder of year.json and year.svg.
    #[arg(long, default_value = "target/bench")]
    pub out: PathBuf,
    /// Folder of the built-in embedding model; without it recall goes by words.
    #[arg(long, default_value = "models/use-multilingual-v3")]
    pub model_dir: PathBuf,
}

/// 2026-01-01 00:00:00 UTC.
const START: Timestamp = Timestamp(1_767_225_600_000_000);
/// Days between two samples.
const SAMPLE: i64 = 7;
/// Importance of what lasts.
const LASTING: i32 = 4;
/// How much worse than its first sample recall may become.
const RECALL_LOSS: f64 = 0.03;
/// Topics that events are about, in both languages.
const TOPICS: [(&str, &str); 3] = [("running", "跑步"), ("cooking", "做饭"), ("meetings", "会议")];

/// What lasts: key, value, words, and a question whose answer it is.
struct Lasting {
    key: &'static str,
    value: &'static str,
    says: &'static str,
    asks: &'static str,
    protected: bool,
}

const fn lasting(key: &'static str, value: &'static str, says: &'static str, asks: &'static str, protected: bool) -> Lasting {
    Lasting { key, value, says, asks, protected }
}

const ENGLISH: [Lasting; 8] = [
    lasting("allergy.food", "peanuts", "I am allergic to peanuts", "what food is dangerous for me", true),
    lasting("parking.lot", "B-17", "I always park in lot B-17", "where is my car parked", false),
    lasting("cost.centre", "4711", "My cost centre is 4711", "which cost centre do I book on", false),
    lasting("seat.plane", "aisle", "On planes I always want an aisle seat", "which seat do I like when flying", false),
    lasting("", "", "I always keep my green notebook in drawer 12", "where is the green notebook", false),
    lasting("", "", "My bicycle is always locked at rack R-9", "at which rack is the bicycle", false),
    lasting("dentist.name", "Weber", "My dentist is always Dr. Weber", "who is my dentist", false),
    lasting("printer.floor", "3", "I always use the printer on floor 3", "on which floor is the printer I use", false),
];

const CHINESE: [Lasting; 8] = [
    lasting("allergy.food", "花生", "我对花生过敏", "什么食物对我危险", true),
    lasting("parking.lot", "B-17", "我总是停在B-17车位", "我的车停在哪个车位", false),
    lasting("cost.centre", "4711", "我的成本中心是4711", "我用哪个成本中心", false),
    lasting("seat.plane", "过道", "坐飞机我总是要过道的座位", "我坐飞机喜欢什么座位", false),
    lasting("", "", "我总是把绿色笔记本放在12号抽屉", "绿色笔记本在哪里", false),
    lasting("", "", "我的自行车总是锁在R-9车架", "自行车锁在哪个车架", false),
    lasting("dentist.name", "王医生", "我的牙医一直是王医生", "我的牙医是谁", false),
    lasting("printer.floor", "3", "我总是用3楼的打印机", "我用几楼的打印机", false),
];

/// A user of the year.
struct Person {
    name: String,
    chinese: bool,
    /// Ids of what lasts, with the question.
    lasting: Vec<(String, &'static str)>,
    turns: u32,
}

impl Person {
    fn facts(&self) -> &'static [Lasting; 8] {
        if self.chinese { &CHINESE } else { &ENGLISH }
    }

    fn statement(&mut self, day: i64, kind: pb::Kind, content: String) -> pb::Statement {
        self.turns += 1;
        let turn = pb::TurnRef { session_id: format!("day-{day}"), seq: self.turns };
        pb::Statement {
            kind: kind.into(),
            source_quote: content.clone(),
            content,
            source: pb::Source::UserStatement.into(),
            source_ref: Some(pb::SourceRef { kind: Some(pb::source_ref::Kind::Turn(turn)) }),
            trigger: pb::Trigger::UserRequest.into(),
            ..Default::default()
        }
    }

    /// What is said on a day: events about three topics, one of them every day, each with numbers of its own; a lesson that
    /// matters and one that does not; sometimes the same order again, a wish for a while, and a place that changes. Enough for
    /// each rule of forgetting to have something to do.
    fn day(&mut self, day: i64) -> Vec<pb::Statement> {
        let mut out = Vec::new();
        for part in 0..3 {
            let n = day * 3 + part;
            let topic = if part < 2 { 0 } else { 1 + (day.unsigned_abs() as usize) % 2 };
            let (english, chinese) = TOPICS[topic];
            let content = match (self.chinese, topic) {
                (false, 0) => format!("I ran {} km along the river on lap {n}", 3 + n % 17),
                (false, 1) => format!("I cooked dinner number {n} for {} guests", 2 + n % 6),
                (false, _) => format!("Meeting {n} with the team took {} minutes", 15 + n % 50),
                (true, 0) => format!("我沿河跑了{}公里，第{n}圈", 3 + n % 17),
                (true, 1) => format!("我为{}位客人做了第{n}顿晚饭", 2 + n % 6),
                (true, _) => format!("和团队的第{n}次会议开了{}分钟", 15 + n % 50),
            };
            let statement = self.statement(day, pb::Kind::Event, content);
            let topic = if self.chinese { chinese } else { english };
            out.push(pb::Statement { topic: topic.into(), importance: 1 + i32::try_from(n % 2).unwrap_or(0), ..statement });
        }
        for (at, importance) in [(0, 2), (1, 3)] {
            let n = day * 2 + at;
            let content = if self.chinese {
                format!("我发现{n}号机器要预热{}分钟", 5 + n % 40)
            } else {
                format!("I found that machine {n} has to warm up for {} minutes", 5 + n % 40)
            };
            let lesson = self.statement(day, pb::Kind::Experience, content);
            // One that nobody confirms waits, and is given up after its 90 days.
            let lesson = pb::Statement { importance, ..lesson };
            out.push(if importance > 2 {
                let dialog = pb::source_ref::Kind::Confirmation(format!("dialog {n}"));
                let source_ref = Some(pb::SourceRef { kind: Some(dialog) });
                pb::Statement { source: pb::Source::UserConfirmation.into(), source_ref, ..lesson }
            } else {
                lesson
            });
        }
        if day % 6 == 1 {
            let (value, content) = if self.chinese {
                ("拿铁", format!("我在{day}号窗口点了一杯拿铁"))
            } else {
                ("latte", format!("I ordered a latte at stand {day}"))
            };
            let order = self.statement(day, pb::Kind::Event, content);
            out.push(pb::Statement { key: "coffee.order".into(), value: Some(wire_value(&Value::Text(value.into()))), ..order });
        }
        if day % 5 == 2 {
            let content = if self.chinese {
                format!("这个月我想吃第{day}号套餐")
            } else {
                format!("I want menu number {day} for lunch this month")
            };
            let wish = self.statement(day, pb::Kind::Preference, content);
            out.push(pb::Statement { tier: pb::Tier::Temporary.into(), ..wish });
        }
        if day % 90 == 45 {
            let desk = format!("4-{}", 100 + day);
            let content = if self.chinese {
                format!("从今天起我的工位是{desk}")
            } else {
                format!("My desk is {desk} from now on")
            };
            let moved = self.statement(day, pb::Kind::Fact, content);
            out.push(pb::Statement {
                key: "desk.number".into(),
                value: Some(wire_value(&Value::Text(desk))),
                source: pb::Source::UserCorrection.into(),
                ..moved
            });
        }
        out
    }
}

/// What one sample shows.
#[derive(Clone, Debug, Default, Serialize)]
struct Sample {
    day: i64,
    /// Records by status, of all users.
    counts: BTreeMap<String, i64>,
    /// Share of the questions about what lasts whose answer is among the first five.
    recall: f64,
    /// Bytes of the database.
    bytes: u64,
}

/// What a year came to.
#[derive(Debug, Serialize)]
struct Report {
    users: usize,
    days: i64,
    seconds: f64,
    embedder: String,
    said: u64,
    not_active: BTreeMap<String, u64>,
    steps: BTreeMap<String, u64>,
    samples: Vec<Sample>,
}

/// Plays it.
///
/// # Errors
/// When something that was promised does not hold: named with its day.
pub async fn run(mut args: YearArgs) -> Result<()> {
    if args.short {
        (args.users, args.days, args.capacity) = (4, 60, 80);
    }
    let watch = Stopwatch::start();
    let clock = ManualClock::at(START);
    let mut policy = PolicySettings::default();
    policy.forgetting.schedule.enabled = false;
    policy.forgetting.schedule.rest = 0;
    policy.forgetting.schedule.batch = 256;
    policy.forgetting.capacity = args.capacity;
    let embedder: Option<Arc<dyn Embedder>> = if args.model_dir.join("weights.npz").exists() {
        Some(Arc::new(Cached::new(Builtin::load(&args.model_dir).context("the model")?)))
    } else {
        None
    };
    let name = embedder.as_ref().map_or_else(|| "none".to_owned(), |e| e.identity().name.clone());
    let role = Longterm::moved(&args.out.join("scratch"), clock.clone(), policy, embedder).await?;
    let mut people: Vec<Person> = (0..args.users)
        .map(|n| Person { name: format!("person-{n}"), chinese: n % 2 == 1, lasting: Vec::new(), turns: 0 })
        .collect();
    let mut report = Report {
        users: args.users,
        days: args.days,
        seconds: 0.0,
        embedder: name,
        said: 0,
        not_active: BTreeMap::new(),
        steps: BTreeMap::new(),
        samples: Vec::new(),
    };
    for day in 0..=args.days {
        clock.set(START.plus(day * DAY + 9 * DAY / 24));
        for person in &mut people {
            talk(&role, person, day, &mut report).await.with_context(|| format!("day {day}, {}", person.name))?;
        }
        role.settled().await?;
        clock.set(START.plus((day + 1) * DAY + 2 * DAY / 24));
        for (what, count) in night(&role).await.with_context(|| format!("the night of day {day}"))? {
            *report.steps.entry(what).or_default() += count;
        }
        role.settled().await?;
        tiers(&role, day).await?;
        if day % SAMPLE == 0 || day == args.days {
            let sample = sample(&role, &people, day).await?;
            let counts: Vec<String> = sample.counts.iter().map(|(status, count)| format!("{status} {count}")).collect();
            // Progress that nobody can read is no reason to stop.
            let _ = writeln!(
                std::io::stderr(),
                "[{:>4} s] day {day:>3}: recall {:.3}, {} KB, {}",
                watch.elapsed().as_secs(),
                sample.recall,
                sample.bytes / 1_024,
                counts.join(", ")
            );
            report.samples.push(sample);
        }
    }
    lasts(&role, &people).await?;
    for rule in ["F2 move", "F4 move", "F5 make", "F5 condense", "F6 move", "F6 purge", "F7 move", "F10 make"] {
        ensure!(report.steps.contains_key(rule), "no step of {rule} in {} days: {:?}", args.days, report.steps);
    }
    report.seconds = watch.elapsed().as_secs_f64();
    role.stop().await;
    std::fs::create_dir_all(&args.out)?;
    std::fs::write(args.out.join("year.json"), serde_json::to_vec_pretty(&report)?)?;
    std::fs::write(args.out.join("year.svg"), chart(&report))?;
    bounded(&report, &args)?;
    let said: Vec<String> = report.steps.iter().map(|(what, count)| format!("{what} {count}")).collect();
    let mut out = std::io::stdout();
    writeln!(out, "{} users, {} days in {:.0} s: {} statements", report.users, report.days, report.seconds, report.said)?;
    writeln!(out, "steps: {}", said.join(", "))?;
    writeln!(out, "not active at once: {:?}", report.not_active)?;
    writeln!(out, "{} and year.json are written", args.out.join("year.svg").display())?;
    Ok(())
}

/// What one user says and asks on a day.
async fn talk(role: &Longterm, person: &mut Person, day: i64, report: &mut Report) -> Result<()> {
    let mut client = role.client(&person.name)?;
    let mut statements = Vec::new();
    if day == 0 {
        for fact in person.facts() {
            let statement = person.statement(day, pb::Kind::Fact, fact.says.to_owned());
            let value = (!fact.value.is_empty()).then(|| wire_value(&Value::Text(fact.value.into())));
            // It matters more than a lesson: capacity takes those first, confirmed as they are.
            let fact_of =
                pb::Statement { key: fact.key.into(), value, protected: fact.protected, importance: LASTING, ..statement };
            statements.push((fact_of, Some(fact.asks)));
        }
        let rule = if person.chinese { "周日绝对不要给我打电话" } else { "Never call me on Sundays" };
        let statement = person.statement(day, pb::Kind::Constraint, rule.to_owned());
        let asks = if person.chinese { "周日可以打电话吗" } else { "may I be called on Sundays" };
        statements.push((pb::Statement { importance: 1, ..statement }, Some(asks)));
    }
    statements.extend(person.day(day).into_iter().map(|statement| (statement, None)));
    for (statement, asks) in statements {
        let request = pb::RememberRequest { user_id: person.name.clone(), statement: Some(statement), ..Default::default() };
        report.said += 1;
        let answer = match client.remember(request).await {
            // What passes by may be refused by a rule: it is counted, and shown in the report.
            Err(status) if asks.is_none() && status.code() == tonic::Code::FailedPrecondition => {
                let why = strata_api::error::fault(&status).reason.name();
                *report.not_active.entry(format!("REFUSED {why}")).or_default() += 1;
                continue;
            }
            answer => answer?,
        };
        let result = answer.into_inner().result.unwrap_or_default();
        if result.outcome() != pb::Outcome::Active {
            *report.not_active.entry(result.outcome().as_str_name().to_owned()).or_default() += 1;
        }
        if let Some(asks) = asks {
            let memory = result.memory.context("what lasts is stored")?;
            ensure!(memory.status() == pb::Status::Active, "{asks}: became {}", memory.status().as_str_name());
            person.lasting.push((memory.memory_id, asks));
        }
    }
    Ok(())
}

/// One night's run; the dry run before it says the same.
async fn night(role: &Longterm) -> Result<BTreeMap<String, u64>> {
    let planned = run_once(role, true).await?;
    let done = run_once(role, false).await?;
    let deeds = |steps: &[admin::MaintenanceStep]| {
        let mut all: Vec<String> =
            steps.iter().map(|s| format!("{} {} {:?} {:?}", s.memory_id, s.rule, s.action(), s.related)).collect();
        all.sort();
        all
    };
    ensure!(deeds(&planned) == deeds(&done), "the dry run says otherwise than the run");
    let mut out = BTreeMap::new();
    for step in done.iter().filter(|step| step.action() != admin::MaintenanceAction::Keep) {
        let action = step.action().as_str_name().trim_start_matches("MAINTENANCE_ACTION_").to_lowercase();
        let observed = if step.state() == admin::MaintenanceState::Observed { " observed" } else { "" };
        *out.entry(format!("{} {action}{observed}", step.rule)).or_default() += 1;
    }
    Ok(out)
}

async fn run_once(role: &Longterm, dry_run: bool) -> Result<Vec<admin::MaintenanceStep>> {
    let request = admin::RunMaintenanceRequest { dry_run, ..Default::default() };
    let mut stream = role.admin()?.run_maintenance(request).await?.into_inner();
    let mut out = Vec::new();
    while let Some(answer) = stream.message().await? {
        out.extend(answer.steps);
    }
    Ok(out)
}

/// Tiers act on their days: after a night nothing is in force whose time is over.
async fn tiers(role: &Longterm, day: i64) -> Result<()> {
    for (what, sql) in [
        (
            "events",
            "SELECT count(*) FROM records WHERE status = 'ACTIVE' AND kind = 'EVENT' AND create_time <= ?1 - 7 * 86400000000",
        ),
        (
            "passing wishes",
            "SELECT count(*) FROM records WHERE status = 'ACTIVE' AND tier = 'TEMPORARY' AND last_cited_at IS NULL \
             AND create_time <= ?1 - 30 * 86400000000",
        ),
        (
            "expired or waiting records",
            "SELECT count(*) FROM records WHERE status IN ('ACTIVE', 'CANDIDATE') AND expire_time <= ?1",
        ),
    ] {
        let over = role.number(sql, START.plus((day + 1) * DAY + 2 * DAY / 24)).await?;
        ensure!(over == 0, "{over} {what} are in force after their time, on day {day}");
    }
    Ok(())
}

async fn sample(role: &Longterm, people: &[Person], day: i64) -> Result<Sample> {
    let mut out = Sample { day, counts: role.statuses().await?, bytes: role.bytes()?, ..Sample::default() };
    let (mut asked, mut found) = (0_u32, 0_u32);
    for person in people {
        let mut client = role.client(&person.name)?;
        for (id, question) in &person.lasting {
            let request =
                pb::RecallRequest { user_id: person.name.clone(), query: (*question).into(), k: 5, ..Default::default() };
            let items = client.recall(request).await?.into_inner().items;
            asked += 1;
            found += u32::from(items.iter().any(|item| item.memory.as_ref().is_some_and(|m| m.memory_id == *id)));
        }
    }
    out.recall = f64::from(found) / f64::from(asked.max(1));
    Ok(out)
}

/// What lasts is all there, as it was said.
async fn lasts(role: &Longterm, people: &[Person]) -> Result<()> {
    for person in people {
        let mut client = role.client(&person.name)?;
        for (id, question) in &person.lasting {
            let request = pb::GetMemoryRequest { user_id: person.name.clone(), memory_id: id.clone(), ..Default::default() };
            let memory = client.get_memory(request).await?.into_inner().memory.context("a record")?;
            ensure!(memory.status() == pb::Status::Active, "{}: {question}: is {}", person.name, memory.status().as_str_name());
        }
    }
    Ok(())
}

/// Sizes stay bounded, and recall does not fall.
fn bounded(report: &Report, args: &YearArgs) -> Result<()> {
    let first = report.samples.iter().find(|sample| sample.day >= SAMPLE).context("a sample")?;
    let last = report.samples.last().context("a sample")?;
    ensure!(
        last.recall + RECALL_LOSS >= first.recall,
        "recall fell from {:.3} on day {} to {:.3} on day {}",
        first.recall,
        first.day,
        last.recall,
        last.day
    );
    // Of each user: what may be in force, with summaries of the same night, which count in the next one; some six records a day
    // that are archived or expired, which go after 14 days, or after twice that; one or two a day that wait for a confirmation,
    // for 90 days.
    let users = i64::try_from(args.users)?;
    for (statuses, most) in [
        (&["ACTIVE"][..], i64::try_from(args.capacity + TOPICS.len())?),
        (&["EXPIRED", "ARCHIVED"], 6 * (14 + 14)),
        (&["CANDIDATE"], 2 * (90 + 1)),
    ] {
        for sample in &report.samples {
            let count: i64 = statuses.iter().filter_map(|status| sample.counts.get(*status)).sum();
            ensure!(count <= most * users, "{count} records are {} on day {}", statuses.join(" or "), sample.day);
        }
    }
    Ok(())
}

/// The chart: counts by status and recall over the days.
fn chart(report: &Report) -> String {
    const W: f64 = 720.0;
    const H: f64 = 300.0;
    const LEFT: f64 = 60.0;
    const TOP: f64 = 50.0;
    const COLOURS: [(&str, &str); 6] = [
        ("ACTIVE", "#1b7f4b"),
        ("ARCHIVED", "#8a6d1d"),
        ("EXPIRED", "#b0532b"),
        ("CANDIDATE", "#5b5fc7"),
        ("SUPERSEDED", "#777777"),
        ("DELETED", "#aa3377"),
    ];
    let days = (report.days.max(1)) as f64;
    let most = report.samples.iter().flat_map(|sample| sample.counts.values()).copied().max().unwrap_or(1).max(1) as f64;
    let x = |day: i64| LEFT + W * day as f64 / days;
    let y = |share: f64| TOP + H * (1.0 - share);
    let line = |points: Vec<(f64, f64)>, colour: &str, dash: &str| {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        format!("<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash} points=\"{}\"/>\n", points.join(" "))
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{} users, {} days: records by status, and recall of what lasts</text>\n",
        W + 2.0 * LEFT,
        H + 130.0,
        report.users,
        report.days
    );
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        // A string cannot fail.
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{:.0}</text>\
             <text x=\"{}\" y=\"{:.1}\">{share:.2}</text>",
            LEFT + W,
            LEFT - 6.0,
            y(share) + 4.0,
            most * share,
            LEFT + W + 6.0,
            y(share) + 4.0,
            y = y(share),
        );
    }
    for month in 0..=(report.days / 30) {
        let at = x(month * 30);
        let _ = writeln!(out, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", TOP + H + 18.0, month * 30);
    }
    let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">day</text>", LEFT + W / 2.0, TOP + H + 34.0);
    let mut legend = LEFT;
    for (status, colour) in COLOURS {
        let points: Vec<(f64, f64)> = report
            .samples
            .iter()
            .map(|sample| (x(sample.day), y(sample.counts.get(status).copied().unwrap_or_default() as f64 / most)))
            .collect();
        if report.samples.iter().any(|sample| sample.counts.contains_key(status)) {
            out.push_str(&line(points, colour, ""));
            let _ = writeln!(out, "<text x=\"{legend:.1}\" y=\"{:.1}\" fill=\"{colour}\">{status}</text>", TOP + H + 58.0);
            legend += 95.0;
        }
    }
    let points = report.samples.iter().map(|sample| (x(sample.day), y(sample.recall))).collect();
    out.push_str(&line(points, "#c02020", " stroke-dasharray=\"6 4\""));
    let _ = writeln!(out, "<text x=\"{legend:.1}\" y=\"{:.1}\" fill=\"#c02020\">recall@5 (right scale)</text>", TOP + H + 58.0);
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn c097_sixty_days_of_two_languages_leave_what_lasts_and_no_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let args = YearArgs {
            users: 4,
            days: 60,
            short: true,
            capacity: 80,
            out: folder.path().to_owned(),
            model_dir: folder.path().join("no-model"),
        };
        run(args).await.expect("sixty days");
        let chart = std::fs::read_to_string(folder.path().join("year.svg")).expect("a chart");
        assert!(chart.starts_with("<svg") && chart.contains("ARCHIVED") && chart.ends_with("</svg>\n"));
    }
}
