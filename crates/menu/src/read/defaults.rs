//! Messages and labels that a menu has without writing them, in the languages that are known here.
//! All of them are in the GSM alphabet.

/// The texts of one language.
pub(super) struct Defaults {
    /// The language, as menus name it.
    pub language: &'static str,
    pub more: &'static str,
    pub back: &'static str,
    pub choose: &'static str,
    pub unknown: &'static str,
    pub failed: &'static str,
    pub exit: &'static str,
    pub pending: &'static str,
    pub lost: &'static str,
    pub resumed: &'static str,
}

const ENGLISH: Defaults = Defaults {
    language: "en",
    more: "More",
    back: "Back",
    choose: "Please try again.",
    unknown: "The session is over. Please dial again.",
    failed: "The service is not available. Please try again later.",
    exit: "Goodbye.",
    pending: "Please wait a moment, then dial again.",
    lost: "What became of your last request cannot be shown here. Please ask our service.",
    resumed: "Welcome back.",
};

const OTHERS: [Defaults; 2] = [
    Defaults {
        language: "sw",
        more: "Zaidi",
        back: "Rudi",
        choose: "Tafadhali jaribu tena.",
        unknown: "Kipindi kimekwisha. Tafadhali piga tena.",
        failed: "Huduma haipatikani. Tafadhali jaribu tena baadaye.",
        exit: "Kwaheri.",
        pending: "Tafadhali subiri kidogo, kisha piga tena.",
        lost: "Matokeo ya ombi lako hayawezi kuonyeshwa hapa. Tafadhali uliza huduma yetu.",
        resumed: "Karibu tena.",
    },
    Defaults {
        language: "fr",
        more: "Suite",
        back: "Retour",
        choose: "Veuillez réessayer.",
        unknown: "La session est terminée. Veuillez recomposer le code.",
        failed: "Le service n'est pas disponible. Veuillez réessayer plus tard.",
        exit: "Au revoir.",
        pending: "Veuillez patienter un instant, puis recomposer le code.",
        lost: "Impossible d'afficher ici la suite de votre demande. Contactez notre service.",
        resumed: "Bon retour.",
    },
];

/// Those of a language, such as `sw` or `sw-KE`; English ones for a language that is not known.
pub(super) fn of(language: &str) -> &'static Defaults {
    let primary = language.split(['-', '_']).next().unwrap_or_default();
    let mut others = OTHERS.iter();
    others.find(|it| it.language == primary).unwrap_or(&ENGLISH)
}

/// Whether a language has texts of its own here.
pub(crate) fn has(language: &str) -> bool {
    let primary = language.split(['-', '_']).next();
    primary == Some(of(language).language)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Limit, outside_alphabet};

    #[test]
    fn all_fit_on_a_short_page_of_the_gsm_alphabet() {
        for texts in [of("en"), of("sw"), of("fr-CI")] {
            for text in [
                texts.choose,
                texts.unknown,
                texts.failed,
                texts.exit,
                texts.pending,
                texts.lost,
                texts.resumed,
                texts.more,
                texts.back,
            ] {
                assert_eq!(outside_alphabet(text), None, "{text}");
                assert!(Limit::new(100).unwrap().holds_all(text), "{text}");
            }
        }
        assert!(has("sw") && has("en-GB") && has("fr") && !has("am"));
        assert_eq!(of("am").exit, "Goodbye.");
    }
}
