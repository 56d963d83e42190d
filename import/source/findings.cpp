#include "import/source/findings.h"

namespace bucketwise {

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
