//! Kinds of signal, the unit each is kept in, and the explicit table that converts into it.
//!
//! A unit that is not in the table is refused: guessing would turn 90 kg/MWh into 90 000. Zero and negative values
//! are real and pass unchanged; only numbers that are not finite are refused.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What a signal measures. The name is the one on the wire and in policy files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Power free to consume at a site, kW; negative is a deficit.
    SurplusPower,
    /// Power that would be curtailed without us, kW.
    CurtailmentPower,
    /// The most a site may draw from the grid, kW.
    ImportLimit,
    /// Money per MWh; may be negative.
    EnergyPrice,
    /// gCO2e per kWh.
    CarbonIntensity,
    /// Share of renewable generation, 0 to 1.
    RenewableShare,
    /// A source's own scale (percentile, band); never compared between sources. Higher is less green.
    Index,
}

/// How a value was derived or on which market it holds; part of the stream key, so that an average never silently
/// replaces a marginal value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Of the last unit of demand (carbon).
    Marginal,
    /// Over all generation (carbon).
    Average,
    /// The day-ahead market (price).
    DayAhead,
    /// The intraday market (price).
    Intraday,
    /// The real-time or balancing market (price).
    RealTime,
    /// What the site's own tariff charges (price).
    Retail,
}

/// A canonical unit: what values are in once they have passed the edge, and what an expression's numbers carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// kW.
    Kilowatt,
    /// gCO2e/kWh.
    GramPerKilowattHour,
    /// Money per MWh, in the stream's currency.
    MoneyPerMegawattHour,
    /// A share, 0 to 1.
    Share,
    /// A source's own scale.
    Index,
    /// A count of workers.
    Worker,
    /// A ratio without a unit.
    Plain,
}

/// Why a value could not be taken in.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UnitError {
    /// The unit is not in the table of that kind.
    #[error("`{unit}` is not a unit of {kind}: use one of {}", kind.known_units())]
    Unknown {
        /// The kind that was to be converted.
        kind: Kind,
        /// The unit as given.
        unit: String,
    },
    /// NaN or an infinity, or one that conversion would produce.
    #[error(
        "{value} {unit} is not a finite number: send `quality: missing` where there is no value"
    )]
    NotFinite {
        /// The value as given.
        value: f64,
        /// The unit as given.
        unit: String,
    },
}

impl Kind {
    /// Every kind, in order.
    pub const ALL: [Kind; 7] = [
        Kind::SurplusPower,
        Kind::CurtailmentPower,
        Kind::ImportLimit,
        Kind::EnergyPrice,
        Kind::CarbonIntensity,
        Kind::RenewableShare,
        Kind::Index,
    ];

    /// The name on the wire and in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::SurplusPower => "surplus_power",
            Kind::CurtailmentPower => "curtailment_power",
            Kind::ImportLimit => "import_limit",
            Kind::EnergyPrice => "energy_price",
            Kind::CarbonIntensity => "carbon_intensity",
            Kind::RenewableShare => "renewable_share",
            Kind::Index => "index",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The unit its values are kept in.
    pub const fn unit(self) -> Unit {
        match self {
            Kind::SurplusPower | Kind::CurtailmentPower | Kind::ImportLimit => Unit::Kilowatt,
            Kind::EnergyPrice => Unit::MoneyPerMegawattHour,
            Kind::CarbonIntensity => Unit::GramPerKilowattHour,
            Kind::RenewableShare => Unit::Share,
            Kind::Index => Unit::Index,
        }
    }

    /// Converts `value` from `unit` to the canonical unit of this kind. The conversion is monotonic: a greater value
    /// never becomes a smaller one.
    pub fn convert(self, value: f64, unit: &str) -> Result<f64, UnitError> {
        let (multiply, divide) = self.factor(unit).ok_or_else(|| UnitError::Unknown {
            kind: self,
            unit: unit.to_owned(),
        })?;
        let converted = value * multiply / divide;
        if converted.is_finite() {
            Ok(converted)
        } else {
            Err(UnitError::NotFinite {
                value,
                unit: unit.to_owned(),
            })
        }
    }

    /// Orders two values so that the less green one is `Greater`; ties between issues are won by the less green.
    pub fn less_green(self, a: f64, b: f64) -> Ordering {
        match self {
            Kind::EnergyPrice | Kind::CarbonIntensity | Kind::Index => a.total_cmp(&b),
            Kind::SurplusPower
            | Kind::CurtailmentPower
            | Kind::ImportLimit
            | Kind::RenewableShare => b.total_cmp(&a),
        }
    }

    /// What to multiply by, then divide by. Two exact numbers, so that W to kW is one correctly rounded division.
    fn factor(self, unit: &str) -> Option<(f64, f64)> {
        let table = match self {
            Kind::SurplusPower | Kind::CurtailmentPower | Kind::ImportLimit => POWER,
            Kind::CarbonIntensity => CARBON,
            Kind::RenewableShare => SHARE,
            Kind::Index => INDEX,
            Kind::EnergyPrice => return price_factor(unit),
        };
        table
            .iter()
            .find(|row| row.0 == unit)
            .map(|row| (row.1, row.2))
    }

    fn known_units(self) -> String {
        let table = match self {
            Kind::SurplusPower | Kind::CurtailmentPower | Kind::ImportLimit => POWER,
            Kind::CarbonIntensity => CARBON,
            Kind::RenewableShare => SHARE,
            Kind::Index => INDEX,
            Kind::EnergyPrice => {
                return "an ISO 4217 code with /MWh or /kWh, such as EUR/MWh".to_owned();
            }
        };
        table.iter().map(|row| row.0).collect::<Vec<_>>().join(", ")
    }
}

impl Basis {
    /// Every basis, in order.
    pub const ALL: [Basis; 6] = [
        Basis::Marginal,
        Basis::Average,
        Basis::DayAhead,
        Basis::Intraday,
        Basis::RealTime,
        Basis::Retail,
    ];

    /// The name on the wire and in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Basis::Marginal => "marginal",
            Basis::Average => "average",
            Basis::DayAhead => "day_ahead",
            Basis::Intraday => "intraday",
            Basis::RealTime => "real_time",
            Basis::Retail => "retail",
        }
    }

    /// The basis of that name.
    pub fn parse(name: &str) -> Option<Basis> {
        Basis::ALL.into_iter().find(|basis| basis.as_str() == name)
    }

    /// Whether values of `kind` can have this basis: the first two belong to
    /// carbon, renewable shares and indexes, the others to prices.
    pub const fn fits(self, kind: Kind) -> bool {
        match self {
            Basis::Marginal | Basis::Average => {
                matches!(
                    kind,
                    Kind::CarbonIntensity | Kind::RenewableShare | Kind::Index
                )
            }
            Basis::DayAhead | Basis::Intraday | Basis::RealTime | Basis::Retail => {
                matches!(kind, Kind::EnergyPrice)
            }
        }
    }
}

impl Unit {
    /// How the unit is written beside a number.
    pub const fn as_str(self) -> &'static str {
        match self {
            Unit::Kilowatt => "kW",
            Unit::GramPerKilowattHour => "gCO2e/kWh",
            Unit::MoneyPerMegawattHour => "money/MWh",
            Unit::Share => "share",
            Unit::Index => "index",
            Unit::Worker => "workers",
            Unit::Plain => "1",
        }
    }

    /// Whether the unit is a mere number: multiplying by it leaves the other factor's unit.
    pub const fn is_dimensionless(self) -> bool {
        matches!(self, Unit::Share | Unit::Worker | Unit::Plain)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Name, multiply by, divide by.
type UnitRow = (&'static str, f64, f64);

const POWER: &[UnitRow] = &[
    ("kW", 1.0, 1.0),
    ("W", 1.0, 1_000.0),
    ("MW", 1_000.0, 1.0),
    ("GW", 1_000_000.0, 1.0),
];

/// The avoirdupois pound is 453.59237 g exactly (international yard and pound agreement, 1959), so 1 lb/MWh is
/// 0.45359237 g/kWh.
const POUND: f64 = 0.453_592_37;

const CARBON: &[UnitRow] = &[
    ("gCO2e/kWh", 1.0, 1.0),
    ("gCO2eq/kWh", 1.0, 1.0),
    ("gCO2/kWh", 1.0, 1.0),
    ("g/kWh", 1.0, 1.0),
    ("kgCO2e/MWh", 1.0, 1.0),
    ("kgCO2eq/MWh", 1.0, 1.0),
    ("kgCO2/MWh", 1.0, 1.0),
    ("kg/MWh", 1.0, 1.0),
    ("kgCO2e/kWh", 1_000.0, 1.0),
    ("kgCO2eq/kWh", 1_000.0, 1.0),
    ("kgCO2/kWh", 1_000.0, 1.0),
    ("kg/kWh", 1_000.0, 1.0),
    ("tCO2e/MWh", 1_000.0, 1.0),
    ("tCO2/MWh", 1_000.0, 1.0),
    ("t/MWh", 1_000.0, 1.0),
    ("lbs_co2_per_mwh", POUND, 1.0),
    ("lbs/MWh", POUND, 1.0),
    ("lb/MWh", POUND, 1.0),
    ("lbCO2/MWh", POUND, 1.0),
    ("lbsCO2/MWh", POUND, 1.0),
];

const SHARE: &[UnitRow] = &[
    ("1", 1.0, 1.0),
    ("share", 1.0, 1.0),
    ("fraction", 1.0, 1.0),
    ("%", 1.0, 100.0),
    ("percent", 1.0, 100.0),
];

const INDEX: &[UnitRow] = &[
    ("index", 1.0, 1.0),
    ("1", 1.0, 1.0),
    ("percentile", 1.0, 1.0),
    ("band", 1.0, 1.0),
];

/// The ISO 4217 currencies in circulation (list one, funds codes and precious metals left out).
const CURRENCIES: &str = "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN \
BZD CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD \
HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD \
MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON \
RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX \
USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG";

/// Whether a text is the code of a currency in circulation.
pub(crate) fn is_currency(code: &str) -> bool {
    CURRENCIES
        .split_ascii_whitespace()
        .any(|known| known == code)
}

fn price_factor(unit: &str) -> Option<(f64, f64)> {
    let (currency, per) = unit.split_once('/')?;
    if !is_currency(currency) {
        return None;
    }
    match per {
        "MWh" => Some((1.0, 1.0)),
        "kWh" => Some((1_000.0, 1.0)),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_become_canonical() {
        for (kind, value, unit, expected) in [
            (Kind::SurplusPower, 1_500.0, "W", 1.5),
            (Kind::SurplusPower, -2.5, "MW", -2_500.0),
            (Kind::ImportLimit, 0.0, "kW", 0.0),
            (Kind::CarbonIntensity, 90.0, "kg/MWh", 90.0),
            (Kind::CarbonIntensity, 0.09, "kg/kWh", 90.0),
            (
                Kind::CarbonIntensity,
                1_000.0,
                "lbs_co2_per_mwh",
                453.592_37,
            ),
            (Kind::EnergyPrice, -12.5, "EUR/MWh", -12.5),
            (Kind::EnergyPrice, 0.125, "USD/kWh", 125.0),
            (Kind::RenewableShare, 75.0, "%", 0.75),
            (Kind::Index, 42.0, "percentile", 42.0),
        ] {
            assert_eq!(kind.convert(value, unit), Ok(expected), "{kind} {unit}");
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_refused() {
        for (kind, unit) in [
            (Kind::SurplusPower, "kWh"),
            (Kind::SurplusPower, "kw"),
            (Kind::SurplusPower, ""),
            (Kind::CarbonIntensity, "kW"),
            (Kind::EnergyPrice, "XYZ/MWh"),
            (Kind::EnergyPrice, "EUR"),
            (Kind::EnergyPrice, "eur/MWh"),
            (Kind::EnergyPrice, "EUR AFN/MWh"),
        ] {
            let error = kind.convert(1.0, unit).unwrap_err();
            assert!(matches!(&error, UnitError::Unknown { .. }), "{kind} {unit}");
            assert!(error.to_string().contains("use one of"), "{error}");
        }
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(matches!(
                Kind::SurplusPower.convert(value, "kW"),
                Err(UnitError::NotFinite { .. })
            ));
        }
        assert!(matches!(
            Kind::SurplusPower.convert(1e306, "GW"),
            Err(UnitError::NotFinite { .. })
        ));
    }

    #[test]
    fn the_less_green_value_is_greater() {
        assert_eq!(
            Kind::CarbonIntensity.less_green(200.0, 100.0),
            Ordering::Greater
        );
        assert_eq!(Kind::EnergyPrice.less_green(-5.0, 3.0), Ordering::Less);
        assert_eq!(Kind::Index.less_green(9.0, 3.0), Ordering::Greater);
        assert_eq!(Kind::SurplusPower.less_green(1.0, 5.0), Ordering::Greater);
        assert_eq!(Kind::RenewableShare.less_green(0.9, 0.1), Ordering::Less);
    }

    #[test]
    fn names_read_back() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.as_str()), Some(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        for basis in Basis::ALL {
            assert_eq!(Basis::parse(basis.as_str()), Some(basis));
            assert_eq!(
                serde_json::to_string(&basis).unwrap(),
                format!("\"{basis}\"")
            );
        }
        assert_eq!(Kind::parse("surplus"), None);
        assert!(
            CURRENCIES
                .split_ascii_whitespace()
                .all(|code| code.len() == 3)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn conversion_keeps_the_order(
            kind in prop::sample::select(Kind::ALL.to_vec()), row in 0..32_usize, a in -1e9..1e9_f64, b in -1e9..1e9_f64,
        ) {
            let units: Vec<&str> = match kind {
                Kind::SurplusPower | Kind::CurtailmentPower | Kind::ImportLimit => POWER.iter().map(|r| r.0).collect(),
                Kind::CarbonIntensity => CARBON.iter().map(|r| r.0).collect(),
                Kind::RenewableShare => SHARE.iter().map(|r| r.0).collect(),
                Kind::Index => INDEX.iter().map(|r| r.0).collect(),
                Kind::EnergyPrice => vec!["EUR/MWh", "USD/kWh"],
            };
            let unit = units[row % units.len()];
            let (x, y) = (kind.convert(a, unit).unwrap(), kind.convert(b, unit).unwrap());
            // Rounding may make two values one, but never turns them round.
            prop_assert!(x == y || (a < b) == (x < y), "{} {}", kind, unit);
            prop_assert!(x == y || kind.less_green(a, b) == kind.less_green(x, y), "{} {}", kind, unit);
        }
    }
}
