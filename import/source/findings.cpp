#include "import/source/findings.h"

namespace bucketwise {

std::vector<Caveat> caveats_of(const Findings& findings, Weakens what) {
    std::vector<Caveat> caveats;
    for (const Finding& finding : findings.all) {
        if (finding.weakens == what) {
            const bool says_whose = what == Weakens::link && finding.item == "link";
            caveats.push_back(
                {.text = says_whose ? finding.text : finding.item + ": " + finding.text});
        }
    }
    return caveats;
}

std::string text_of_kinds(const std::map<std::string, std::size_t>& counts) {
    constexpr std::size_t most_listed = 8;
    std::vector<std::string> texts;
    for (const auto& [kind, count] : counts) {
        if (texts.size() < most_listed) {
            texts.push_back(fmt::format("{} x {}", count, kind));
        }
    }
    const std::string more = counts.size() > most_listed
                                 ? fmt::format(" and {} more kinds", counts.size() - most_listed)
                                 : "";
    return fmt::format("{}{}", fmt::join(texts, "; "), more);
}

std::string text_of(const Findings& findings) {
    std::string text;
    for (const auto& [kind, title] :
         {std::pair(FindingKind::found, "Found"), std::pair(FindingKind::assumed, "Assumed"),
          std::pair(FindingKind::missing, "Not found, or left out")}) {
        bool first = true;
        for (const Finding& finding : findings.all) {
            if (finding.kind == kind) {
                text += first ? fmt::format("\n  {}:\n", title) : "";
                text += fmt::format("    {:<18} {}\n", finding.item, finding.text);
                first = false;
            }
        }
    }
    return text;
}

}  // namespace bucketwise
