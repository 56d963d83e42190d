// The report of a validation: as Markdown with its pictures beside it, and as one HTML file.
#pragma once

#include <string>
#include <vector>

#include "calibrate/comparison/step_comparison.h"
#include "calibrate/fit/calibration.h"

namespace bucketwise {

struct Picture {
    std::string name;   // of the files NAME.svg and NAME.png
    std::string title;  // what to look at
    std::string svg;    // the file's text; empty: not drawn
};

struct ValidationReport {
    Comparison comparison;
    Calibration calibration;
    std::string prediction;  // the text of bucketwise predict
    std::vector<Picture> pictures;
    std::vector<std::string> commands;  // that give the same files again, from the measurements on
};

// Both begin with the verdict, its picture, and three numbers: the saving, the error, and how sure
// both are. Names from files are escaped for Markdown and HTML.
std::string markdown_report(const ValidationReport& report);

// Details are folded, except in print. It fetches nothing, and adapts to phones and dark mode.
std::string html_report(const ValidationReport& report);

}  // namespace bucketwise
