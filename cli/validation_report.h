// The report of a validation, for people: as Markdown with its pictures beside it, and as one HTML
// file with everything in it.
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

std::string markdown_report(const ValidationReport& report);

// Nothing in it is fetched from anywhere; it is as readable on a phone as in print.
std::string html_report(const ValidationReport& report);

}  // namespace bucketwise
