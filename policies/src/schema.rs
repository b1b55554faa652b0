//! The JSON schema of policy files, generated from the types that read them: for editors, which complete and check
//! while one writes.
//!
//! It says what a schema can say: keys, words, patterns and which keys belong together. Expressions, units and names
//! are checked by [`crate::PolicySet::compile`] alone. Draft 7, the one that YAML editors know best.

use std::borrow::Cow;

use chrono_tz::TZ_VARIANTS;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::document::{
    API_VERSION, CalendarDocument, KIND, LABELS_MAX, NAME_MAX, PolicyDocument, SCHEMES,
    SOURCE_NAME_MAX, SignalDocument,
};
use crate::expr::{EXPRESSION_MAX, RESERVED};
use crate::rules::{CALENDARS_MAX, SIGNALS_MAX};
use crate::units::{Basis, Kind};
use crate::words::{
    BUDGET_SCOPES, EXPECTS, FLOOR_ON_MISSING, LIMIT_UNITS, MODES, ON_ESTIMATED, PERIODS,
    RULE_KINDS, SIGNAL_SCOPES, THENS, WORK_UNITS,
};

/// The schema of `kind: SchedulingPolicy`, as text: the same on every build, keys in alphabetical order.
pub fn policy_schema() -> String {
    let mut settings = SchemaSettings::draft07().for_deserialize();
    // Before the others, which wrap what stands beside a reference.
    settings.transforms.insert(0, Box::new(Plain));
    let schema = settings
        .into_generator()
        .into_root_schema_for::<PolicyDocument>();
    // A Value with text keys always has a text.
    serde_json::to_string_pretty(&sorted(schema.to_value())).unwrap_or_default() + "\n"
}

/// In alphabetical order, whether or not serde_json keeps the order of insertion in this build.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(list) => list.into_iter().map(sorted).collect(),
        Value::Object(map) => {
            let mut pairs: Vec<(String, Value)> = map.into_iter().collect();
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            pairs
                .into_iter()
                .map(|(key, value)| (key, sorted(value)))
                .collect()
        }
        other => other,
    }
}

/// A key that need not be there is left out, not null; numbers have bounds, not a width in bits; and a description has
/// no line breaks but those between paragraphs.
#[derive(Clone)]
struct Plain;

impl Transform for Plain {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(object) = schema.as_object_mut() else {
            return;
        };
        if object
            .get("format")
            .is_some_and(|format| format != "date-time")
        {
            object.remove("format");
        }
        if let Some(Value::String(text)) = object.get_mut("description") {
            let paragraphs = text
                .split("\n\n")
                .map(|paragraph| paragraph.replace('\n', " "));
            *text = paragraphs.collect::<Vec<_>>().join("\n\n");
        }
        if let Some(Value::Array(types)) = object.get_mut("type") {
            types.retain(|name| name != "null");
            if let [single] = types.as_slice() {
                let single = single.clone();
                object.insert("type".to_owned(), single);
            }
        }
        if let Some(Value::Array(words)) = object.get_mut("enum") {
            words.retain(|word| !word.is_null());
        }
        let Some(Value::Array(choices)) = object.get_mut("anyOf") else {
            return;
        };
        let before = choices.len();
        choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
        if let (true, [Value::Object(single)]) = (choices.len() < before, choices.as_slice()) {
            let single: Map<String, Value> = single.clone();
            object.remove("anyOf");
            for (key, value) in single {
                object.entry(key).or_insert(value);
            }
        }
    }
}

/// A type of the schema alone, written out.
macro_rules! written {
    ($($name:ident: $schema:expr;)+) => {$(
        #[derive(Debug)]
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )+};
}

/// The same, written where it is used: for words and other short ones.
macro_rules! inline {
    ($($name:ident: $schema:expr;)+) => {$(
        #[derive(Debug)]
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )+};
}

inline! {
    ApiVersion: json_schema!({"const": API_VERSION});
    DocumentKind: json_schema!({"const": KIND});
    Mode: words(MODES);
    SignalKind: one_of(Kind::ALL.map(Kind::as_str));
    SignalBasis: one_of(Basis::ALL.map(Basis::as_str));
    SignalScope: words(SIGNAL_SCOPES);
    Scheme: one_of(SCHEMES.iter().copied());
    Then: words(THENS);
    OnEstimated: words(ON_ESTIMATED);
    RuleKind: words(RULE_KINDS);
    Expect: words(EXPECTS);
    Period: words(PERIODS);
    BudgetScope: words(BUDGET_SCOPES);
    FloorOnMissing: words(FLOOR_ON_MISSING);
}

written! {
    Name: json_schema!({
        "description": "Up to 63 of a-z, 0-9, `-` and `.`, beginning and ending with a letter or digit.",
        "type": "string", "maxLength": NAME_MAX, "pattern": "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
    });
    Variable: json_schema!({
        "description": "Up to 63 of a-z, 0-9 and `_`, beginning with a letter.",
        "type": "string", "maxLength": NAME_MAX, "pattern": "^[a-z][a-z0-9_]*$",
    });
    Labels: json_schema!({
        "description": "Labels of pools, as the fleet file gives them.",
        "type": "object", "minProperties": 1, "maxProperties": LABELS_MAX,
        "propertyNames": {"minLength": 1, "maxLength": SOURCE_NAME_MAX},
        "additionalProperties": {"type": ["string", "number", "boolean"], "minLength": 1, "maxLength": SOURCE_NAME_MAX},
    });
    Duration: json_schema!({
        "description": "Whole numbers with the units d, h, m, s and ms, the longer unit first.",
        "type": "string", "minLength": 2,
        "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
        "examples": ["250s", "10m", "1h30m", "1d"],
    });
    Expression: json_schema!({
        "description": "A condition: names of signals, `calendar.NAME`, facts such as `pool.training_kw`, numbers, + - * /, < <= > >= == !=, && || !, a ? b : c, and min, max, abs, floor, ceil.",
        "type": ["string", "boolean"], "minLength": 1, "maxLength": EXPRESSION_MAX,
        "examples": ["carbon < 100 && surplus > pool.training_kw"],
    });
    Quantity: json_schema!({
        "description": "An expression whose value is a number.",
        "type": ["string", "number"], "minLength": 1, "maxLength": EXPRESSION_MAX,
        "examples": ["floor(surplus * 0.9 / pool.training_kw)"],
    });
    Cron: json_schema!({
        "description": "Five fields: minute, hour, day of the month, month, day of the week.",
        "type": "string", "pattern": "^\\s*\\S+(\\s+\\S+){4}\\s*$",
        "examples": ["0 22 * * MON-FRI"],
    });
    TimeZone: one_of(TZ_VARIANTS.iter().map(|zone| zone.name()));
    Instant: json_schema!({
        "description": "RFC 3339 with an offset from UTC.",
        "type": "string", "format": "date-time",
        "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$",
        "examples": ["2026-12-24T12:00:00Z"],
    });
    Limit: json_schema!({
        "description": "An amount above 0 with its unit: workers, kW, MW, kWh, MWh, GWh, kgCO2e, tCO2e or an ISO 4217 code.",
        "type": "string", "pattern": amount(&limit_units(|_| true, true)),
        "examples": ["60 kW", "2 MWh", "500 kgCO2e", "1000 EUR"],
    });
    Assume: json_schema!({
        "description": "A number above 0, in gCO2e/kWh or in money per MWh; another unit may be written behind it.",
        "type": ["number", "string"], "exclusiveMinimum": 0, "pattern": "^[0-9]+(\\.[0-9]+)?\\s*[A-Za-z0-9_/%]*$",
        "examples": [900],
    });
    Work: json_schema!({
        "description": "Hours of ready workers.",
        "type": "string", "pattern": amount(&WORK_UNITS.join("|")),
        "examples": ["400 worker-hours"],
    });
    OnDispatch: json_schema!({
        "description": "`keep`, `release`, or a percentage of training power.",
        "type": "string", "pattern": "^(keep|release|[1-9][0-9]?%)$",
        "examples": ["keep", "release", "90%", "75%", "50%"],
    });
}

/// The signals of a policy by name.
#[derive(Debug)]
pub(crate) struct Signals;

impl JsonSchema for Signals {
    fn schema_name() -> Cow<'static, str> {
        "Signals".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let signal = generator.subschema_for::<SignalDocument>();
        let name = generator.subschema_for::<Variable>();
        json_schema!({
            "type": "object", "maxProperties": SIGNALS_MAX, "additionalProperties": signal,
            "propertyNames": {"allOf": [name, {"not": {"enum": RESERVED}}]},
        })
    }
}

/// The calendars of a policy by name.
#[derive(Debug)]
pub(crate) struct Calendars;

impl JsonSchema for Calendars {
    fn schema_name() -> Cow<'static, str> {
        "Calendars".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let calendar = generator.subschema_for::<CalendarDocument>();
        let name = generator.subschema_for::<Variable>();
        json_schema!({
            "type": "object", "maxProperties": CALENDARS_MAX, "additionalProperties": calendar, "propertyNames": name,
        })
    }
}

fn words<T>(table: &[(&'static str, T)]) -> Schema {
    one_of(table.iter().map(|row| row.0))
}

fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> Schema {
    let words: Vec<&str> = words.into_iter().collect();
    json_schema!({"type": "string", "enum": words})
}

/// The pattern of a number above 0 with one of these units.
fn amount(units: &str) -> String {
    format!("^(?=.*[1-9])[0-9]+(\\.[0-9]+)?\\s*({units})$")
}

/// The units of limits whose measure is of a sort, as a pattern; `money`: and the currencies.
fn limit_units(of: impl Fn(crate::Measure) -> bool, money: bool) -> String {
    let mut units: Vec<&str> = LIMIT_UNITS
        .iter()
        .filter(|row| of(row.1.0))
        .map(|row| row.0)
        .collect();
    if money {
        units.push("[A-Z]{3}");
    }
    units.join("|")
}

/// `activate` and what belongs to it, or `rules`.
pub(crate) fn one_form_of_rules(schema: &mut Schema) {
    schema.insert(
        "oneOf".to_owned(),
        json!([
            {"required": ["activate"], "properties": {"rules": false}},
            {"required": ["rules"], "properties": {"activate": false, "release": false, "window": false}},
        ]),
    );
}

/// `scheme` with `scope: zone`, and only then.
pub(crate) fn scheme_with_zone(schema: &mut Schema) {
    together(schema, &[key_with("scope", "zone", "scheme")]);
}

/// `calendar` with a schedule, `lasts` with a guarantee, and only then.
pub(crate) fn keys_of_expectation(schema: &mut Schema) {
    together(
        schema,
        &[
            key_with("expect", "schedule", "calendar"),
            key_with("expect", "guarantee", "lasts"),
        ],
    );
}

/// A period for what adds up, and a signal for what is weighed.
pub(crate) fn keys_of_budget(schema: &mut Schema) {
    let counted_in =
        |units: String| json!({"properties": {"limit": {"pattern": format!("({units})$")}}});
    let instantaneous = limit_units(|measure| !measure.has_period(), false);
    let unweighed = limit_units(|measure| !measure.is_weighed(), false);
    together(
        schema,
        &[
            json!({
                "if": counted_in(instantaneous),
                "then": {"properties": {"per": false, "time_zone": false}},
                "else": {"required": ["per"]},
            }),
            json!({
                "if": counted_in(unweighed),
                "then": {"properties": {"signal": false, "assume": false}},
                "else": {"required": ["signal", "assume"]},
            }),
        ],
    );
}

/// A key that has to be there where another has a value, and that has no place elsewhere.
fn key_with(key: &str, value: &str, needed: &str) -> Value {
    json!({
        "if": {"properties": {key: {"const": value}}},
        "then": {"required": [needed]},
        "else": {"properties": {needed: false}},
    })
}

fn together(schema: &mut Schema, conditions: &[Value]) {
    schema.insert("allOf".to_owned(), conditions.into());
}
