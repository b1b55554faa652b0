//! The form of `*.test.yaml`: which keys may stand where. What they must say is checked in [`super::load`].

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use sunward_policies::yaml::{Entries, Spanned};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileForm {
    pub(super) policies: Option<Vec<Spanned<String>>>,
    pub(super) fleet: Option<Spanned<String>>,
    pub(super) start: Option<Spanned<String>>,
    pub(super) interval: Option<Spanned<String>>,
    pub(super) tests: Spanned<Vec<TestForm>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TestForm {
    pub(super) name: Spanned<String>,
    pub(super) skip: Option<String>,
    pub(super) start: Option<Spanned<String>>,
    pub(super) interval: Option<Spanned<String>>,
    pub(super) signals: Option<Entries<String>>,
    pub(super) forecasts: Option<Entries<OneOrMany<ForecastForm>>>,
    pub(super) running: Option<Entries<u32>>,
    #[serde(default)]
    pub(super) events: Vec<EventForm>,
    pub(super) expect: Spanned<Vec<ExpectForm>>,
}

/// One entry, or a list of them.
#[derive(Debug)]
pub(super) struct OneOrMany<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping or a list of mappings")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OneOrMany<T>, A::Error> {
                let one = T::deserialize(MapAccessDeserializer::new(map))?;
                Ok(OneOrMany(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMany<T>, A::Error> {
                let mut many = Vec::new();
                while let Some(one) = list.next_element()? {
                    many.push(one);
                }
                Ok(OneOrMany(many))
            }
        }
        deserializer.deserialize_any(Either(PhantomData))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForecastForm {
    pub(super) issued: Spanned<String>,
    pub(super) from: Option<Spanned<String>>,
    pub(super) interval: Option<Spanned<String>>,
    pub(super) values: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventForm {
    pub(super) at: Spanned<String>,
    #[serde(rename = "override")]
    pub(super) set: Option<OverrideForm>,
    pub(super) clear: Option<Spanned<String>>,
    pub(super) grid_event: Option<GridEventForm>,
    pub(super) budget: Option<BudgetForm>,
    pub(super) restart: Option<bool>,
    pub(super) clock_stepped: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverrideForm {
    pub(super) id: Option<String>,
    pub(super) scope: Spanned<String>,
    pub(super) effect: EffectForm,
    pub(super) workers: Option<u32>,
    pub(super) lasts: Option<Spanned<String>>,
    pub(super) owner: Option<String>,
    pub(super) reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EffectForm {
    On,
    Off,
    Freeze,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GridEventForm {
    pub(super) id: Option<String>,
    pub(super) kind: KindForm,
    pub(super) site: Option<Spanned<String>>,
    pub(super) zone: Option<ZoneForm>,
    pub(super) from: Option<Spanned<String>>,
    pub(super) to: Option<Spanned<String>>,
    pub(super) kilowatts: Option<Spanned<f64>>,
    pub(super) power_percent: Option<Spanned<u8>>,
    pub(super) status: Option<StatusForm>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KindForm {
    Dispatch,
    Limit,
    Emergency,
    Test,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StatusForm {
    Scheduled,
    Active,
    Completed,
    Cancelled,
    Superseded,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ZoneForm {
    pub(super) scheme: Spanned<String>,
    pub(super) code: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetForm {
    pub(super) name: Spanned<String>,
    pub(super) part: Option<String>,
    pub(super) spent: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectForm {
    pub(super) at: Option<Spanned<String>>,
    pub(super) between: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) pool: Option<Spanned<String>>,
    pub(super) workers: Option<u32>,
    pub(super) ready: Option<u32>,
    pub(super) reason: Option<String>,
    pub(super) rule: Option<String>,
    pub(super) bent: Option<String>,
    pub(super) power_percent: Option<u8>,
    pub(super) no_change: Option<bool>,
}
