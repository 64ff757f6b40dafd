//! What holds only now (rule G6): how somebody or something is at this moment, what is about to happen, what was just done,
//! what is set while something is tried. Told by how it is said (a time that is now, a state beside a verb of being, an
//! end that is given), with word classes for the states; a habit, a condition or a change that lasts undoes it, and so does
//! length: a long sentence tells more than its mood.

use crate::phrases::{Table, compile, table, without};
use crate::script::is_han;
use std::sync::LazyLock;

/// Word classes of the English table.
const CLASSES: &[(&str, &str)] = &[
    ("<start>", r"^[^\p{L}\p{N}]*(?:<sigh>,? )*"),
    ("<sigh>", "gosh|ugh|omg|man|wow|god|oh|argh|sigh|well|ok|okay|honestly|sorry|damn|jeez|yeah|so|please|now|and|but"),
    ("<b>", r"(?-u:\b)"),
    ("<end>", r"[^\p{L}\p{N}]*$"),
    // A time that is now.
    ("<now>", "<today>|rn|right now|atm|at present|this (?:week|weekend)"),
    ("<today>", "today|tonight|this (?:morning|afternoon|evening)"),
    (
        "<soon>",
        "(?:about |like )?(?:an? |half an |a few |a couple of |five |ten |fifteen |twenty |thirty |\\d+ ?)(?:seconds?|secs?|minutes?|mins?|hours?|hrs?)",
    ),
    // Who, and how.
    ("<am>", "(?:i|we)(?:'m|'re| am| are)"),
    ("<is>", "'m|'s|'re| am| is| are"),
    ("<feel>", "'m|'re| am| are| feel| is| feels"),
    (
        "<extent>",
        "so|too|very|really|super|pretty|quite|a bit|bit|a little|totally|absolutely|completely|utterly|extremely|feeling|getting|just|\
already|kind of|kinda|much|a lot|way|far|so much|rather|still|incredibly|bloody|fucking|freaking|damn|all|seriously|honestly|a tad|\
proper|dead|properly|literally|beyond|basically|pretty much|not",
    ),
    // States of body and mind that come and go.
    (
        "<state>",
        "busy|tired|exhausted|sleepy|hungry|thirsty|starving|starved|famished|ravenous|parched|peckish|hangry|stressed(?: out)?|bored|sad|\
happy|angry|upset|excited|annoyed|frustrated|sick|unwell|lonely|nervous|anxious|hectic|swamped|slammed|snowed under|overwhelmed|worn out|\
burnt out|burned out|knackered|pooped|drained|wiped(?: out)?|beat|fried|shattered|bushed|zonked|spent|frazzled|bummed(?: out)?|gutted|\
miserable|livid|fuming|pumped|stoked|hyped|giddy|jittery|groggy|sluggish|impatient|restless|grumpy|cranky|moody|irritable|dizzy|nauseous|\
queasy|jet-?lagged|hungover|drowsy|sore|feverish|furious|thrilled|ecstatic|devastated|disappointed|distracted|homesick|under the weather|\
heartbroken|relieved|panicking|freaking out|melting|freezing|boiling|sweating|shivering|soaked|stuck|lost|late|running late|on the phone|\
on hold|speechless|puzzled|confused|stumped|wide awake|half asleep|stuffed|tipsy|drunk|out of breath|in a (?:good|bad|great|terrible|foul|\
weird|funny) mood|in a (?:hurry|rush)|in (?:so much |a lot of )?pain|in tears|in line|in traffic|in a queue|at (?:a loss|my wits' end)|over it|\
having (?:a|an|such a) [\\w ]{0,20}(?:day|week|morning|night|time)",
    ),
    // Things that fail, and how they do.
    (
        "<thing>",
        "wi-?fi|internet|connection|network|signal|reception|battery|phone|laptop|computer|pc|printer|screen|app|page|site|website|server|vpn|\
zoom|teams|tv|traffic|weather|line|queue|kitchen|house|office|room|bathroom|sink|car|oven|heating|ac|air ?con",
    ),
    (
        "<poor>",
        "(?:<extent> |being |acting )*(?:slow|terrible|awful|not working|down|dying|broken|bad|weird|laggy|spotty|flaky|patchy|acting up|dropping|cutting out|crashing|freezing|frozen|\
stuck|low|crazy|insane|horrible|noisy|loud|packed|full|a mess|hot|cold|chilly|stuffy|boiling|roasting|glitchy|playing up|out)",
    ),
    (
        "<wet>",
        "raining|snowing|freezing|boiling|pouring|hailing|storming|drizzling|sweltering|windy|foggy|humid|hot|cold|chilly|roasting|stuffy|loud|noisy|dark|packed",
    ),
    (
        "<body>",
        "(?:my|the) (?:poor |left |right |whole )?(?:head|brain|mind|eyes?|nose|throat|stomach|tummy|back|feet|foot|legs?|arms?|shoulders?|neck|skin|ears?|\
teeth|tooth|body|heart|voice|hands?|fingers?|belly)",
    ),
    // What one is at for minutes or hours, unlike learning, building or planning something.
    (
        "<activity>",
        "waiting|babysitting|cooking|driving|walking|eating|drinking|standing|sitting|queu(?:e)?ing|lying|boarding|packing|unpacking|screaming|barking|crying|\
shivering|sweating|freezing|melting|starving|yelling|shouting|vacuuming|hoovering|cleaning|washing|showering|baking|heading|rushing|dashing|charging|\
downloading|loading|rebooting|buffering|texting|typing|calling|ringing|sneezing|coughing|bleeding|dying|choking|panicking|procrastinating|debugging|chilling|\
relaxing|napping|sleeping|dozing|listening|watching|shopping|commuting home|running (?:late|low|out|errands|behind)|grabbing|ironing|mowing|parking|arguing|\
fighting|laughing|munching|stuffing|scrolling|staring|picking up|dropping off|unloading|frying|grilling",
    ),
    // Somebody of the house or near it.
    (
        "<other>",
        "(?:the |my |our )(?:baby|kids?|toddler|child|dog|cat|husband|wife|boss|guests?|plumber|neighbou?rs?|landlord|driver|food|pizza|parcel|taxi|uber)|he|she|they",
    ),
    ("<meal>", "lunch|dinner|breakfast|supper|coffee|tea|break|drinks?|beers?|shower|bath|nap|snack|bite|meal"),
    (
        "<then>",
        "<weekday>|tomorrow|tonight|noon|midnight|later|the weekend|next week|later today|the end of the (?:day|week)|\\d{1,2}(?::\\d\\d)?(?: ?[ap]m)",
    ),
    ("<weekday>", "monday|tuesday|wednesday|thursday|friday|saturday|sunday"),
];

static NOW: LazyLock<Table> = LazyLock::new(|| {
    table(
        CLASSES,
        &[
            // How somebody is, subject or not: "I'm so knackered", "not feeling great tbh".
            "<b>(?:i|we|everyone|my brain|my body|my head)(?:<feel>) (?:<extent> )*<state><b>",
            r"<start>(?:<extent> )*<state>(?: (?:after|from) (?:that|this|the|today|work|all|my|a|last|yesterday)[^.;!?]{0,40})?(?: (?:today|now|rn|tbh|ngl|lol|again|this \w+))*<end>",
            r"<b>(?:i|we)(?:'m| am)? (?:not|don't|hardly|barely)(?: really| quite| exactly)? (?:feel|feeling|doing|up to|in the mood|having)(?: like)?(?: so| too| very| all that| that)? (?:great|good|well|hot|it|myself|my best|100%|the best|for it|this)<b>",
            r"<start>not (?:really |quite |exactly )?(?:feeling|doing|up to|in the mood)(?: so| too| very| all that)? (?:great|good|well|hot|it|myself|my best|100%|the best|for it|this)<b>",
            r"<start>(?:i|we)(?:'m| am)? (?:feel|feeling) (?:(?:<extent>|like) )*[\w-]+(?: (?:<now>|now|again|tbh|this \w+|lately))?<end>",
            r"<b><am> (?:so |really |totally |completely |just |kinda |already )*(?:over|done with|sick of|tired of|dreading|not having) (?:this|today|it all|the day)(?: \w+)?(?: (?:already|now|today))?<end>",
            r"<b><body>(?:'s| is| are| feels?| won't| keeps?| just| has gone)+ (?:\w+ )?(?:in knots|killing|pounding|throbbing|itchy|itching|running|runny|blocked|stuffed|mush|fried|fuzzy|foggy|heavy|burning|on fire|churning|upset|swollen|numb|spinning|splitting|racing|gone|sore|tired|hurting|rumbling|growling|cramping)<b>",
            "<start>got (?:a|this) (?:<extent> )*(?:(?:splitting|pounding|bad|terrible|awful|slight) )?(?:headache|cold|fever|hangover|stomach ache|migraine|cramp)<b>",
            "<b>(?:i've|i have|i got|i've got) (?:<extent> )*(?:an? )(?:splitting|pounding|bad|terrible|awful|slight) (?:headache|cold|fever|hangover|stomach ache)<b>",
            "<b>(?:i've|i have|i got|i've got|got) the (?:sniffles|shivers|hiccups|flu|chills|shakes)<b>",
            "<b>(?:i )?could (?:murder|kill for|really go for|do with) (?:an?|some|the)<b>",
            r"<start>(?:i'm|i am|we're|we are) (?:still |just )?at the (?:dentist|dentist's|doctor|doctor's|vet|vet's|hairdresser|hairdresser's|barber|barber's|mechanic|optician|bank|gym|pool|beach|airport|station|supermarket|shops?|pub|cinema|hospital|counter|checkout|till|door|gate)<end>",
            r"<start>feeling (?:(?:<extent>|like) )*[\w-]+ (?:<now>|now|again|tbh|this \w+|lately)<end>",
            r"<start>(?:i )?can(?:'t|not) be (?:bothered|arsed)(?: with (?:this|that|it|anything))?(?: (?:<now>|now|tbh))?<end>",
            r"<start>(?:still )?waiting (?:for|on) (?:the|my|an?|our) [\w ]{2,25}<end>",
            r"<start>(?:still |just )?(?:on the (?:bus|train|tram|plane|phone|road|tube|metro)|in (?:a meeting|bed|traffic|the (?:car|shower|bath)))(?:,|<end>)",
            r"<start>(?:kids?|baby|dog|cat|wife|husband|hubby|missus)(?:<is>) (?:finally |just |still )?(?:asleep|awake|crying|screaming|barking|ill|poorly|here|home|out)(?: <now>| again| now)?<end>",
            r"<b>(?:i|we) (?:barely|hardly|can't|cannot|can not) (?:see straight|keep my eyes open|think straight|breathe|move|talk|walk|stay awake|hear myself|feel my)<b>",
            r"<b>(?:didn't|did not|couldn't|barely|hardly) (?:sleep|slept|eat|ate|rest)(?: \w+){0,3} (?:last night|<today>|all (?:night|day))<b>",
            r"<b>(?:slept|woke up)(?: \w+)? (?:badly|poorly|terribly|horribly|great|well|like \w+ \w+|wonderfully|awfully|late|early|fine)(?: \w+)? (?:last night|<today>|again)<b>",
            r"<b>(?:i've been|i was|we've been) (?:up|awake|on my feet|on the go|on hold|waiting|sitting here|stuck|staring) (?:since|for|all) \w+<b>",
            // How it is today: behind a verb of being, or something that one has or needs only then.
            r"<start><now>,? (?:i|we|he|she|they|my \w+|the \w+)(?:<is>| need| want| can't| won't| gotta|'ve got (?:an?|no|to)| have (?:an?|no|to)) ",
            r"<start><now>,? (?:i|we)(?:'ve got| have)[^.,;!?]{1,40} (?:open|running|loaded|going|left)<end>",
            r"<start>(?:i |we )?(?:just |really |honestly |kinda |so )*feel like (?:\w+ing)<b>",
            r"<b>(?:i|we|he|she|they|it|there|someone|somebody|everyone|everybody|nobody|my \w+|the \w+)(?:<is>) (?:[^.,;!?]{1,40} )?<today><end>",
            r"<b>(?:i|we) (?:have (?:an?|no|to|so much|too much)|'ve got (?:an?|no|to|so much|too much)|need|want|can't|won't|gotta|don't have|haven't got)[^.,;!?]{1,50} <now><end>",
            r"<start>(?:<today>|this (?:week|weekend|month)) (?:only|i(?:'d| would)? (?:rather|like|want|prefer|fancy|feel like|need))<b>",
            // What fails, and the weather.
            r"<start>(?:the|my|our) (?:\w+ ){1,3}(?:is|are|went|has gone|'s) (?:\w+ )?(?:red|down|broken|failing|stuck|dead|offline|late|slow|flaky|empty|full|blocked|out) (?:again|<now>)<end>",
            r"<b>(?:my|the|our|this)(?: \w+)? ?(?:<thing>)(?: \w+){0,2}(?:'s| is| are| keeps| went| just| has)? (?:been )?(?:<poor>)(?: (?:<now>|again|now|here|this \w+|at the moment))+<b>",
            r"<start>(?:brain|head|<thing>)(?:'s| is| isn't)? (?:<poor>|working)(?: (?:<now>|again|now|here))+<b>",
            r"<b>(?:my|the) (?:phone|laptop|battery|computer|tablet|watch|headphones?)(?:'s| is)? (?:down )?(?:at|to|on) \d+ ?(?:%|percent)",
            r"<b><am> (?:down to|at|on) \d+ ?(?:%|percent)(?: battery)?<end>",
            r"<b>(?:my|the) (?:phone|laptop|battery|computer|tablet|watch|headphones?)(?:'s| is)? (?:(?:is|about to|going to|almost|nearly|just|down) )*(?:about to|(?:at|to|on) \d+ ?(?:%|percent)|on \d+ ?(?:%|percent)|dying|dead|die|running out|run out|out of (?:battery|juice|charge)|low)<b>",
            r"<b>it(?:'s| is) (?:<extent> )*(?:<wet>)(?: (?:<now>|in here|here|now|outside|out there|out|again))+<b>",
            r"<b>(?:my|our) (?:\w+ )?(?:flight|train|bus|ferry|parcel|package|delivery|order|taxi|uber|ride|meeting|call|appointment|connection)(?: \w+)?(?: is| was| got| has been|'s been|'s)? (?:delayed|late|cancelled|canceled|stuck|postponed|running late|not here yet)<b>",
            r"<start>(?:i |we )?(?:can't|cannot|couldn't|can not) (?:find|open|reach|get into|log in|connect|load|hear|see) (?:my|the|our|it|anything|you)<b>",
            r"<b><am> (?:running )?out of (?:\w+ ){1,2}(?:at the moment|<now>|again)<b>",
            // Where somebody is for the moment, and what they are at.
            r"<b>(?:i|we|he|she)(?:<is>) (?:just |still |right |smack )*(?:in the middle of (?:an? |the |my |our )?(?:call|meeting|lunch|dinner|something|cooking|moving|lesson|shift|class|exam|work|demo|interview|standup|outage|incident|(?:fire )?drill)|on my way|on our way|on the (?:bus|train|tram|plane|phone|road|toilet|loo)|in a (?:meeting|call|queue|taxi|cab|waiting room)|in (?:bed|transit|the (?:car|shower|bath|kitchen|queue|waiting room))|at (?:the (?:airport|station|gate|doctor's|dentist's|hairdresser's|checkout|gym|pub|bar|vet's?|garage))|asleep|awake|up late|home alone|off sick)<b>",
            r"<b>(?:i|we|<other>|someone|somebody|everyone)(?:<is>) (?:(?:just|still|currently|actually|literally|busy|already|all|both|now|finally|kinda|only|basically|sort of) )*(?:<activity>)<b>",
            "<start>(?:just|currently|still|now|busy) (?:<activity>)<b>",
            r"<b><am> (?:just |still )?having (?:(?:a|my|some|our) )?(?:quick |late |early )?(?:<meal>|(?:technical|connection) (?:trouble|problems|issues))<b>",
            r"<b>(?:<other>|the (?:phone|doorbell|kettle|oven|alarm|bus|train|water|washing machine|cake|pasta))(?:<is>|'s just) (?:just )?(?:asleep|awake|barking|crying|screaming|ringing|boiling|boiled|burning|arriving|here|late|going off|beeping|leaking|calling|shouting|sleeping|napping)<b>",
            r"<b>(?:<other>) (?:has |have )?(?:just|finally|only just) (?:fell asleep|fallen asleep|woke up|woken up|left|arrived|got (?:here|home|back|up)|went (?:to bed|out|home)|called|rang|stopped|showed up|came (?:in|home|back))<b>",
            r"<b>(?:i|we)(?:'ve| have)? (?:haven't|have not|not|still haven't) (?:had|eaten|slept|showered|finished|started|read|seen|looked at|opened|checked|replied|tried|got (?:to|round to|around to))[^.,;!?]{0,30} yet<end>",
            r"<b>(?:i am|i'm|we are|we're) (?:about |nearly |almost |only )?(?:half ?way|part ?way|midway|most of the way) (?:through|into|there|up|down)<b>",
            r"<start>(?:i |we )?can (?:hear|smell) [^.,;!?]{2,40}(?: (?:outside|upstairs|downstairs|next door|from here|<now>))+<end>",
            // About to be, or just done.
            r"<b>(?:i|we|it|my \w+|the \w+)(?:<is>) (?:just )?about to \w+",
            r"<b>(?:i|we|he|she|the \w+|my \w+)(?:'ve| have|'s| has)? (?:just|only just) (?:spilled|spilt|dropped|broke|missed|burnt?|tripped|fell|locked|forgot|cut|hit|lost|deleted|restarted|rebooted|ate|heard|saw|noticed|realised|realized|sent|got off|got out|hung up|stubbed|banged|woke)<b>",
            r"<start>(?:the|my|our) (?:\w+ ){1,2}(?:has |have |'s )?(?:just|only just) (?:went off|gone off|rang|started|stopped|crashed|froze|frozen|died|broke|broken|fell|fallen|rebooted|restarted|left|arrived|finished)<b>",
            r"<start>let me (?:just |quickly )?(?:grab|get|fetch|make|finish|have|put|take|close|open|plug|find|refill) [^.,;!?]{2,30}(?: first| quickly| real quick)?<end>",
            r"<start>(?:traffic|parking|the weather|the wi-?fi|the queue|the line|reception|signal|the noise|the heat)(?:<is>) (?:<extent> )*(?:<poor>|terrible|awful|horrible|insane|crazy|brutal|unbearable|a nightmare|bad)<end>",
            r"<start>(?:someone|somebody|there's someone)(?:'s| is)? (?:just )?(?:at the (?:door|gate)|knocking|calling|ringing|on the (?:phone|line))<b>",
            r"<b>(?:my|the|our|your|next)(?: \w+){1,3}(?:<is>| starts?| leaves?| begins?| departs?| boards?| arrives?| lands?| closes?) in <soon><b>",
            r"<b>(?:i|we)(?:'ve got| have| got| need| must| should| leave| am leaving|'m leaving|'ll| have to)[^.,;!?]{1,40} in <soon><b>",
            r"<b><soon> (?:before (?:my|the|our) (?:next )?\w+|to go|until (?:my|the|our)|till (?:my|the|our))<b>",
            r"<b>(?:i|we)(?:'ll| will) be (?:back|there|home|late|away(?: from \w+ \w+)?|offline|out|right back)(?: \w+)? (?:in|by|for|until|till|soon|shortly)<b>",
            r"<b>(?:gotta|have to|need to|must) (?:run|dash|go|leave|head out|hop off)(?: (?:now|soon|in a \w+|in \d+))?<end>",
            r"<start>(?:just|i just|we just|i've just|only just|i only just) (?:woke up|come out|got (?:up|home|back|in|off|out)|finished (?:eating|<meal>|work|a (?:call|meeting|run))|had (?:<meal>)|ate|landed|arrived|sat down|came (?:home|back|out))<b>",
            "<start>(?:i |we |i've )?(?:just )?(?:popped|nipped|dashed|stepped) (?:out|down|over|round|off|to)<b>",
            // About to do what takes minutes, and where one is held up.
            r"<start>(?:<am> )?(?:just )?(?:gonna|going to|off to|off for|popping|nipping|jumping|hopping|heading)(?: [\w']+){0,3} (?:<meal>|bed|shops?|store|loo|toilet|sleep|gym|walk|jog|eat|dog|bathroom|couch|sofa)<end>",
            r"<start>(?:<am> )?(?:stuck|trapped|sat|stood|held up|holed up) (?:in|on|at|behind) [^.,;!?]{2,30} (?:<now>|again|now)<end>",
            r"<start>(?:stuck|trapped|sat|stood|held up) (?:in|on|at|behind) (?:\w+ ){0,2}(?:traffic|queue|line|lift|elevator|meeting|jam|lobby|waiting room|airport|station)<b>",
            "<start>(?:<am> )?running (?:late|low|out|behind|on (?:fumes|empty)|(?:<soon>|a bit|a little|slightly|way) (?:late|behind))<b>",
            // An end that is near. One that has a date is a fact of months.
            r"<b>(?:out of office|ooo|away|offline|off(?: work)?|out sick|on leave|on vacation|on holiday|unavailable|unreachable)(?: \w+)? (?:until|til|till|through) <then><b>",
            r"<b>(?:i'm|i am|we're|we are|he's|she's|they're)(?: \w+)? [^.,;!?]{1,40} (?:until|till|til|through) <then><end>",
            r"<b>(?:until|till|til) (?:ours?|mine|the|my|we|it|i|they|he|she|you|yours)(?: \w+){0,3} (?:arrives?|comes?|lands?|shows? up|(?:is|are|'s) (?:back|ready|fixed|here|done|up|over|sorted)|gets? (?:back|here|fixed|going|home)|returns?|works? again)<end>",
            r"<start>(?:use|keep|send|skip|stick|work|stay|turn|leave|set|hold|pause|ignore|don't)<b>[^.;!?]{2,60} (?:until|till) <then><end>",
            "<b>any (?:minute|second|moment)(?: now)?<b>",
            // The talk itself: that it pauses or ends.
            r"<start>(?:hang on|hold on|one (?:sec|second|moment)<end>|bear with me|give me (?:a|one|two|five|\d+) (?:sec|second|min|minute|moment)s?|back in (?:a|one|two|five|ten|\d+)|be right back|can't (?:chat|talk|stay|type)(?: long| much| now)?|talk later|ttyl|brb|afk)<b>",
            r"<b>(?:talk|speak|chat|back|write|ping me) in (?:a|an|two|five|ten|\d+) ?(?:sec|second|minute|min|hour|bit|while)s?<b>",
            // What is set while something is tried.
            r"<b>for the (?:rest|remainder|duration) of (?:this|the|today|tonight|our)(?: (?:chat|call|conversation|session|meeting|day|week|trip|game|test))?<end>",
            "<b>for the (?:rest|remainder|duration) of (?:this|the|today's|tonight's|our) (?:chat|call|conversation|session|meeting|day|week|trip|game|test)<b>",
            "<b>(?:just|only)(?: for)? (?:this|the) (?:week|weekend|month|morning|afternoon|evening|meeting|call|trip|run|session|occasion|round)<end>",
            "<b>for (?:this|the current|today's|tonight's) (?:draft|version|round|prototype|mock-?up|iteration|export|print|batch|sprint|demo|meeting|email|mail|query|search|question|answer|reply|commit|branch|build|deploy|push|pr|pull request|merge|file|page|paragraph|section|slide|function|ticket)<b>",
            "<b>(?:while|as long as|so long as|until) (?:we're|we are|i'm|i am|you're)(?: still| just| only)? (?:testing|debugging|trying|experimenting|prototyping|migrating|recording|waiting|done|finished|through)<b>",
            "<b>until the (?:demo|test|call|meeting|migration|experiment|session|release|deploy) (?:is|has|gets)<b>",
            "<b>just to see what happens<b>",
            "<start>just (?:for )?this (?:week|weekend|month|morning|afternoon|evening)<b>",
            "<b>(?:just |only )?to (?:see (?:how it (?:goes|looks|works|behaves|does)|if (?:it|that) (?:works|helps))|give it a (?:try|go|shot)|try it out|check if it (?:works|helps))<b>",
            r"<b>let(?:'s| me| us) (?:bump|set|lower|raise|increase|decrease|drop|crank|turn|dial|switch|swap|use|go with|test|give)[^.;!?]{1,50} (?:and (?:see|check|watch)|first|for (?:a|this) \w+|as an? (?:test|experiment|trial))<b>",
            r"<b>(?:let's|let us|we'll|lets) see (?:if|whether|how|what)<b>",
            r"<b>so (?:that )?(?:we|i) can (?:see|check|watch|find out|debug|trace|measure|compare) (?:what|why|how|whether|if|where)<b>",
            r"<start>(?:try|test|run) (?:it|this|that|them)?(?: \w+)* (?:with|at|on) [^.;!?]{1,40} (?:first|and see|for a start|to begin with)(?: (?:and see|first))?<end>",
            r"<start>(?:try|retry|rerun|re-run|redo|run|repeat|generate)(?: \w+){0,3} (?:again|once more|another time)<b>",
        ],
    )
});

/// The same in Chinese.
static NOW_HAN: LazyLock<Table> = LazyLock::new(|| {
    table(
        &[
            ("<start>", r"^[^\p{L}\p{N}]*"),
            ("<stop>", "[,，。.!！~]|$"),
            ("<end>", r"[^\p{L}\p{N}]*$"),
            (
                "<now>",
                "今天|今儿个?|今晚|今早|今晨|今夜|今日|这会儿|现在|眼下|此刻|这几天|这两天|这周|本周|这(?:个)?礼拜|这(?:个)?星期|这阵子|这会|刚才",
            ),
            ("<extent>", "好|很|太|真|有点儿?|有些|特别|超|超级|非常|都|挺|蛮|老|可|贼|巨|实在|简直|也|又|就"),
            // States of body and mind that come and go.
            (
                "<state>",
                "累|困|乏|饿|渴|烦|忙|难受|难过|郁闷|无聊|焦虑|紧张|开心|高兴|兴奋|激动|崩溃|疲惫|头疼|头晕|晕|恶心|想吐|不舒服|没劲|没精神|没胃口|没心情|没状态|没睡好|没力气|心累|生气|上火|委屈|失落|沮丧|烦躁|尴尬|慌|懵|丧|冷|热|闷|堵|挤|卡|慢|吵|倒霉|着急|赶时间|冻|撑|emo|无语|想哭|心塞|抓狂|头大|恍惚|发烧|感冒|拉肚子|咳嗽|腰酸背痛",
            ),
            ("<spent>", "死|坏|惨|爆|疯|瘫|趴|炸|哭|懵|垮|翻|透|傻|麻|秃|够|残|废"),
            ("<device>", "网|网速|网络|wifi|信号|电脑|手机|服务器|页面|系统|打印机|空调|电梯|暖气|地铁|高速|路上"),
            ("<fails>", "卡|慢|断|崩|死机|打不开|掉线|坏|堵|停|挂|抽风"),
            ("<soon>", r"(?:\d+|[一二两三四五六七八九十几半]+)(?:多)?(?:个)?(?:秒|分钟|小时|钟头|刻钟)"),
            // What one is at for minutes or hours.
            (
                "<activity>",
                "拿快递|拿外卖|喝|洗|睡|逛|排队|等|开(?:车|会)|堵|赶|散步|做饭|煮|炒|切菜|拖地|扫地|晾|收拾|哄|喂|遛|看(?:电影|电视|剧|比赛|病)|买菜|取|寄|加油|充电|上厕所|化妆|理发|剪头|吃(?:饭|午饭|晚饭|早饭|早餐|火锅|面)|搬东西|叫|哭|吵|闹|烤|找|打电话|接电话|候诊|候机|下载|加载",
            ),
            (
                "<place>",
                "候诊室|宠物医院|候机厅|登机口|路上|车上|门口|楼下|厕所|洗手间|医院|诊所|机场|车站|店里|超市|床上|被窝|浴室|厨房|阳台|电梯|收银台|高架|高速|(?:高铁|动车|火车|飞机|地铁|公交|大巴|出租车|轮渡)上",
            ),
            ("<other>", "客人|朋友|快递|外卖|车|师傅|孩子|宝宝|娃|狗|猫|他|她|领导|老板|老公|老婆|出租|邻居|楼上|隔壁"),
        ],
        &[
            // How somebody or something is: a state with its degree, a body and what it does.
            "(?:<state>|冻|笑|吓|急|气|疼|痛)(?:<spent>)(?:了|我了|我|啦)",
            "(?:整个人|人)(?:都|就)?(?:<spent>)(?:了|啦)",
            "(?:<state>|疼|痛|急|乐|笑)(?:成|得跟|得像|得)(?:狗|猪|马|鬼|孙子|不行|要命|要死|慌|厉害|不得了|受不了|一塌糊涂|够呛|想哭|飞起|离谱|喘不过气|睁不开眼|直|发抖|什么似的)",
            "(?:浑身|全身|周身|身上|满身|整个人|脑子|脑袋|脑壳|脑瓜子?|脑门|太阳穴|胃里?|肚子里?|心里|眼睛|眼皮|嗓子|鼻子|腰|腿|手)(?:都|也|又|就|有点|一阵阵?|直|老|快)*(?:不得劲|发冷|发烫|发软|发麻|发抖|没力气|没劲|酸痛|酸软|难受|不舒服|翻江倒海|转不动|一片空白|嗡嗡|睁不开|打架|冒烟|堵得慌|冒汗|要断|抽筋|散架)",
            "(?:喝|吃|熬|跑|走|站|坐|哭|笑|晒|淋|冻|吓|忙|累)得(?:有点|太|好|很|快|都|我)?(?:上头|撑|晕|饱|吐|断片|虚脱|抽筋|湿透|不行)|(?:湿|淋|晒|醉)(?:透|坏|懵|傻|趴)(?:了|啦)",
            "<start>(?:我|我们)(?:现在|今天)?(?:<extent>)+小?(?:<state>)(?:了|啊|呀|哦|<stop>)",
            r"<start>(?:现在|今天)?(?:<extent>)+小?(?:<state>)(?:了|啊|呀|哦)*[^\p{L}\p{N}]*$",
            "(?:<start>|我|我们|<now>)(?:都|已经|真是|实在|简直)*(?:<state>)得[^,，。;；]{2,10}<stop>",
            "<start>(?:我)?(?:现在|今天|这会儿)?(?:感觉|觉得)(?:好多|好些|舒服(?:多)?|好转|不错|很好|糟|好点|不太好|还行|还好)(?:了)?<stop>",
            "(?:<now>)[^,，。;；!！]{0,10}?(?:<extent>)*(?:<state>)(?:[了啊呀哦呢得死]|<stop>)",
            "(?:状态|精神|胃口|心情|情绪|手感|运气)(?:有点|真的?|很|特别|实在|都|也|完全|是|太)*(?:不(?:太|大|怎么|咋)?(?:好|行|在线|对劲|佳|够用|舒服)|不咋地|不咋样|差|糟|低落|崩了|断断续续|欠佳)",
            r"(?:搞|弄|整|逼|气|烦|愁|闹|折腾)得(?:我|我们|人)\p{Han}{0,4}(?:想(?:放弃|哭|辞职|摔|骂|死|吐|走|逃)|快|头|睡不着|没法)",
            "(?:真是?|实在|简直)?够够的(?:了|啦)|(?:不|没)在状态|提不起(?:劲|精神)|一个头两个大",
            "(?:昨晚|昨夜|昨儿夜里|一晚上|整晚|一宿|通宵)[^,，。;；]{0,6}(?:没睡|没合眼|睡不|失眠|折腾|熬夜)",
            "(?:<now>|下午|上午)(?:<extent>)*不(?:太|大)?舒服",
            // What fails, and the place.
            "(?:屋里|外面|外头|这里|这儿|这边|房间里?|办公室里?|车里|车上|地铁上|宿舍里?|会议室里?)(?:现在|今天|怎么|<extent>)*(?:冻|热|冷|吵|闷|挤|黑|乱|臭|潮)(?:死|得|坏|爆|啊|呀|了)",
            r"(?:只剩|还剩|剩|就剩)(?:下|了)?(?:百分之)?[\d一二三四五六七八九十]+(?:%|％)?(?:的)?(?:电|电量|流量)",
            r"<start>(?:唉|哎|啊|完了)?[,，]?[\p{Han}a-zA-Z]{2,8}又(?:红|挂|崩|断|坏|卡|堵|停|死机|报错|超时|漏|黑屏|掉线|失败|罢工)了<stop>",
            "(?:<device>)[^,，。;；]{0,6}(?:今天|现在|又|正|突然|这会儿)[^,，。;；]{0,4}(?:<fails>)",
            "(?:今天|现在|这会儿|突然|又)[^,，。;；]{0,4}(?:<device>)[^,，。;；]{0,4}(?:<fails>)",
            "(?:我|我们|咱)(?:的|们的|坐的|订的|那趟|这趟|等的)?(?:航班|飞机|火车|高铁|车|船|快递|外卖|包裹|会议|预约)[^,，。;；每总老常]{0,6}(?:晚点|延误|取消|改时间|没到|迟到|堵|晚了|停运|还没来)",
            "<start>[^,，。;；]{1,6}(?:找不(?:着|到|见)|打不开|登不上|连不上|加载不出来?|进不去)(?:了|啊|呢)?<stop>",
            "(?:现在|今天|这会儿)[^,，。;；]{0,4}没(?:有)?[^,，。;；]{1,4}了<stop>",
            // Where somebody is for the moment, and what they are at.
            "(?:我|我们|咱|还|仍|正)(?:堵|困|卡)?在(?:<place>)(?:里|上|等|排队)?(?:呢|了|<stop>)",
            "(?:<start>|我|我们|咱|<other>)[^,，。;；]{0,4}(?:正在|正|还在|在)(?:<activity>)[^,，。;；]{0,10}(?:呢|<stop>)",
            "(?:有人|外面有人)(?:在)?(?:敲门|按门铃|砸门|喊我|叫我|找我)",
            r"(?:我|我们|咱)(?:还|正)?在[\p{Han}\w]{1,10}(?:等着|等|排队|排着队|坐着|站着|待着|候着)(?:呢|了)?<stop>",
            "(?:我|我们|咱)(?:都|也)?(?:还没|还没有|尚未)(?:吃|睡|起床|洗|看|读|打开|回|试|动|开始)[^,，。;；]{0,6}<stop>",
            "(?:<now>)(?:怎么)?(?:都)?没人(?:接|理|回|来|在|开)[^,，。;；]{0,5}<stop>",
            "<start>(?:我)?先(?:去)?(?:倒|接|拿|喝|上|洗|吃|买|抽|关|开|找|充|换|眯|歇|躺|睡)[^,，。;；]{1,8}<stop>",
            "(?:我|我们)(?:要|会|可能|大概|得)?(?:晚|迟)(?:到)?<soon>(?:到|来|进会)?<stop>",
            "<start>(?:警报|火警|闹钟|门铃|电话|下课铃|手机|锅|水)(?:刚|刚刚|突然|又)(?:响|开|停|掉|爆|糊)了?<stop>",
            "<start>(?:我)?(?:头|肚子|胃|腰|牙|嗓子|眼睛|脖子|背|腿)(?:好|有点|很|真|特别|又|还)*(?:疼|痛|酸|胀|晕)(?:了|啊|呢|得很|死了)?<end>",
            "(?:这|本)(?:一)?(?:页|章|节|段|屏|帧|张)(?:的)?[^,，。;；]{0,6}先",
            "(?:<now>)(?:有人|谁|别人|他们|她|他)[^,，。;；]{0,3}(?:占|用|坐|拿|借|动|开走|停)(?:了|着)",
            "(?:外面|外头|楼上|楼下|隔壁|旁边)(?:在|正在|又在)[^,，。;；]{1,6}(?:[,，]|<stop>)",
            r"(?:我|我们|咱)(?:还|正)?在\p{Han}{1,6}(?:这儿|这里|这边|那儿)(?:呢|了|等着|排队)<stop>",
            "(?:我|我们|咱)(?:正在|正)(?:<now>)?(?:消防)?(?:演习|彩排|面试|答辩|直播|录音|录像|体检|抽血|复查|搬家|加班|开会|上课|考试)(?:中)?<stop>",
            "(?:<now>|突然|忽然)(?:我)?(?:好|真|超|特别|很|非常)想(?:吃|喝|睡|去|要|哭|回|躺)",
            "(?:<now>|真|实在|简直)[^,，。;；]{0,4}(?:受够|够够的?|熬不下去|撑不住|扛不住|忍不了)了<stop>",
            "(?:我|我们|咱)(?:<now>)(?:还|正)?(?:开|挂|跑|盯|等|抱|吃|喝|看|听|坐|站|躺|排)着",
            "(?:我|我们|咱)(?:正|现在)?在(?:跟|和|陪|与)[^,，。;；]{1,8}(?:吃|喝|聊|打|开会|逛|排队|看电影|散步|说话|通话|视频|商量|吵架|玩)[^,，。;；]{0,6}<stop>",
            "(?:我|我们|咱)(?:正|这会儿)(?:跟|和|给|对着|陪)[^,，。;；]{1,12}<stop>",
            "(?:我|我们|咱)(?:这会儿|现在|正|正在|还在)(?:在)?[^,，。;；我你]{1,16}呢<stop>",
            "(?:<other>|我\\p{Han}{0,2})(?:正)?在(?:厨房|客厅|卧室|书房|院子里?|阳台|楼下|门口|浴室|厕所)(?:<activity>)",
            "(?:我|我们|咱)(?:正|现在)?在(?:<place>|地铁|公交|火车|高铁|飞机)(?:上|里)?[^,，。;；]{0,3}(?:信号|网|不方便|听不)",
            "<start>(?:我)?(?:等会儿?|待会儿?|一会儿?|过会儿?|等下)(?:我)?(?:还)?(?:要|得|去|就)[^,，。;；]{1,14}<end>",
            "<start>(?:今晚|今天|今儿)(?:就|我|先)*不[^,，。;；]{1,6}了<end>",
            "<start>(?:<state>)(?:<spent>)<end>",
            "(?:状态|精神|胃口|心情|情绪|手感|运气)(?:<extent>)*(?:拉胯|拉垮|爆棚|起飞|炸裂|在谷底)",
            r"<start>(?:正|还|刚)?在?(?:<activity>)\p{Han}{0,3}呢<end>",
            // Somebody who is out for a while.
            "(?:<other>|我\\p{Han}{1,3})(?:刚|刚刚|已经)?(?:出门|下楼|上楼|出去|进屋)[^,，。;；起以]{0,8}了<stop>",
            "(?:<activity>|接孩子|接人|送人|倒垃圾|跑步|健身|打球|钓鱼|拿快递)去了<stop>",
            "(?:<other>)(?:们)?(?:马上|快|就要|即将|眼看|随时)(?:就)?(?:要)?(?:到|来|回|走|下)",
            "(?:<other>)(?:刚|刚刚|才|总算|终于)(?:睡|走|到|醒|来|回|吃|起)(?:着|了|家|床)?<stop>",
            "[^,，。;；]{1,12}个不停|(?:我|饭|菜|活|会)[^,，。;；]{0,8}到一半<stop>",
            "(?:我|我们|咱)(?:正|在|得|要|还)*赶(?:时间|飞机|火车|车|路|着|高铁|地铁)",
            "<start>(?:明天|待会儿?|马上|等会儿?)[^,，。]{0,8}[,，](?:我)?(?:现在)?(?:<extent>)(?:<state>)(?:<stop>)",
            // What is only today.
            "(?:<start>|[,，])[^,，。;；]{0,4}(?:<now>)[^,，。;；]{0,4}(?:不(?:去|来|出门|想|上|开|太?方便|在)|没(?:空|时间|法|办法|课|会|带|电|网)|请(?:了)?假|出差|加班|居家|远程|调休|值班|轮到|得(?:去|走|赶|出|回|先|交|加|早|写)|还得|别)",
            "(?:这周|本周|这(?:个)?礼拜|这(?:个)?星期|今天|今晚|这两天|这几天)(?:我|先|都|就|请|你|给我|帮我)*(?:想|想让|希望|改用|换成|改成|按)",
            "(?:这|那)(?:几|两|些)天(?:我|都|就|先|也)?(?:别|不|没|请|休|有事|暂)",
            "(?:就|只|仅)(?:限)?(?:这|今)(?:一)?(?:周|天|晚|次|回|顿|趟|单|通|个月|个星期)",
            // About to be, or just done.
            "(?:快|马上|马上就|就|就要|快要|眼看|立马)(?:要)?(?:没电|关机|到家|到站|下班|开会|登机|起飞|出发|睡|迟到|上课|断网|没流量|上车|下车|出门|开车|轮到我|撑不住|饿晕|睡着)(?:了|啦|咯)",
            "(?:正|马上|这就|正准备|正打算)要?(?:出门|走|睡|开会|上车|上飞机|登机|下班|吃饭|离开|关机|下线)",
            r"(?:还有|再过|还剩|只剩|剩|过)<soon>\p{Han}{0,3}(?:就|要|开|到|得|下)",
            "<soon>(?:之)?后(?:我|我们|就)?(?:有|要|得|还|开|到|出|走)",
            r"<start>(?:我|我们|他|她)?(?:刚|刚刚|才)(?:才)?(?:一不小心)?(?:(?:把|将)\p{Han}{1,6})?(?:洒|打翻|摔|碰|烫|撞|弄丢|弄脏|弄坏|删|误删|重启|错过|忘|扭|绊)",
            "<start>(?:我|我们)?(?:刚|刚刚|才)(?:才)?(?:起床|睡醒|醒|到家|下班|吃完|吃过|吃饱|回来|回到|落地|下课|开完|练完|跑完|忙完|洗完|到公司|上车|下飞机|坐下|进门)",
            r"(?:今早|今天|早上|凌晨)[一二三四五六七八九十\d]+点(?:多|半)?就(?:起|醒|来)了",
            // An end that is near. One that has a date is a fact of months.
            "(?:请假|休假|出差|外出|不在|离线|放假)[^,，。;；]{0,4}(?:到|至)(?:今|明|后|下?周|星期|礼拜)",
            r"(?:待|呆|住|在|忙|睡|休息|等)到(?:今|明|后|下周|这周|晚上|下午|中午)\p{Han}{0,3}<stop>",
            "(?:明天|今晚|后天|下周\\p{Han}?|节前)(?:之前|以前|前)(?:都)?先",
            "(?:演示|测试|联调|会议|任务|迁移|部署)(?:结束|完|跑完|做完)(?:之前|以前|前)",
            // The talk itself: that it pauses or ends.
            "一会儿(?:就)?(?:回来|再聊|再说)|等我(?:一下|一会儿?|几分钟|下)|马上(?:回来|就回|到)<stop>|不能聊(?:太久|了|多)|先不(?:聊|说)了|稍后(?:再|回)",
            "(?:出去|离开|走开|失陪|下线|去(?:开门|接个电话|拿个?快递|趟厕所))(?:一下|一会儿?|一趟|几分钟)|(?:分钟|小时|钟头|会儿)(?:之)?后(?:再)?(?:聊|说|回|见|联系)",
            // What is set while something is tried.
            "(?:测试|调试|试验|实验|试用|演示|排查|迁移|压测|联调|灰度)(?:期间|阶段|过程中|这段时间)[^,，。;；]{0,4}先",
            "(?:这|本)(?:次|轮|场|段)(?:聊天|对话|会话|测试|会议|任务|谈话|讨论|期间|出差|旅行|行程)",
            "(?:这|本)(?:份|个|版|稿|张|轮|次|批|封|篇)(?:草稿|初稿|稿|稿子|文档|邮件|报告|导出|打印|版本|原型|演示)(?:里|中)?[^,，。;；]{0,6}先",
            "(?:先)[^,，。;；]{0,12}(?:看看|瞧瞧|试试)(?:效果|结果|反应|行不行|情况|怎么样|再说)",
            "(?:看看|试试|瞧瞧)(?:有没有|管不管用|能不能|会不会|好不好使|行不行|灵不灵)",
            "(?:好|方便|以便)(?:看看|看|查|排查|定位|对比|观察|确认|验证|复现)(?:一下)?(?:哪|为什么|怎么|是不是|到底|问题|原因|报错|有没有|什么)",
            "(?:设成|设为|改成|调到|调成|换成)[^,，。]{0,12}再(?:试|跑|测)(?:一)?(?:次|遍|下)<stop>",
            "<start>(?:请|那|你|就)*再(?:试|跑|运行|生成|调|测|算)(?:一)?(?:次|遍|下|轮)<stop>",
        ],
    )
});

/// A habit, a condition, a thing that lasts, or something that began today and goes on.
static LASTS: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "always",
            "never",
            "usually",
            "normally",
            "generally",
            "often",
            "sometimes|at times|other times",
            "every",
            "each (?:day|week|month|year|time|morning)",
            "whenever",
            "(?:if|when) (?:i|we|it|my|the|there|people|somebody|someone|long|big|a|an|meetings?|lunch|swimming|eating|sleeping|reading|flying|driving)",
            "after (?:people|long|big|an?|meetings?|lunch|dinner|work|swimming|eating|sleeping|reading|flying|driving|running)",
            "on (?:mon|tues|wednes|thurs|fri|satur|sun)days",
            "in (?:the )?(?:winter|summer|spring|autumn|fall)",
            "since (?:\\d{4}|last|my|the \\w+|i|we|he|she|childhood|birth|then|school|college|january|february|march|april|may|june|july|august|september|october|november|december|covid)",
            "for (?:years|\\d+ years|as long as|ages|good|life)",
            "chronic\\w*",
            "from (?:now|today|this|tomorrow|next)(?: \\w+)? on\\w*",
            "starting (?:today|this|tomorrow|next)",
            "(?:as of|since) (?:today|this)",
            "(?:birthday|anniversary|born|turn(?:s|ed)? \\w+|years? old|diagnosed|promoted|hired|engaged|married|divorced|pregnant|retired|graduated|quit|adopted|signed|moved|joined|became|learned|learnt|found out|decided|started|switched|finished my \\w+|passed)",
            "permanently|by nature|as a rule|for a living|tend to",
            "(?:makes?|gets?|making|getting|keeps?) me",
        ],
        &[
            "总是|一直|经常|常常|通常|一般|习惯|老是|向来|从来|容易|天生|慢性|多年|好几年|每|逢|凡是|只要|一到|一.{1,6}就|的时候(?:会|就|都|总|喜欢|爱)|之后会|后会",
            "从(?:今天|今|这周|现在|明天|本周)(?:起|开始)|(?:今天|今日|本周|这周)(?:起|开始)|以后",
            "生日|纪念日|出生|满\\p{Han}岁|周岁|结婚|领证|离婚|怀孕|确诊|入职|离职|辞职|升职|毕业|退休|搬(?:家|进|来|到[^一])|领养|学会|考上|考过|签(?:了|约)|决定|开始|当上|加入|戒了?|成为|换(?:了|成|到)|买了|改成了",
            "最(?:烦|怕|讨厌|喜欢|爱)",
            "先生|首先|原先|现在(?:在|是|住|用|做|当|叫|的|开|养|负责|每|都|喜欢|更|改|搬|换)[^,，。;；呢]{2,}$",
        ],
    )
});
/// Words in which those of a state have another meaning.
static NO_STATE: LazyLock<Table> = LazyLock::new(|| {
    compile(
        &[
            "(?:happy|glad|excited|thrilled|pleased|nervous|anxious|confused|late) (?:to|with|for|about|that|when|in)",
            "(?:sick|tired|bored|hungry|thirsty|starving|stuck) (?:of|for|with|on) (?:knowledge|\\w+ (?:and|so|,)|outlook|\\w+ing)",
            "(?:i'm|i am|we're|we are) (?:down|up|spent|beat) (?:to|with|by|from|for)",
            "(?:sick|tired|bored|exhausted|drained|stressed|overwhelmed|annoyed|frustrated|upset|nervous|anxious|happy|angry|scared|confused|distracted)(?: out)? (?:of|by|about|with|for|at|in|around) (?:being|having|people|crowds?|spiders|heights|dogs|open|loud|noise|public|small|big|\\w+ing)",
            "late (?:riser|sleeper|bloomer|shift|twenties|thirties|forties|fifties)",
            "lost (?:my|our|the|a|an|all|most|\\d)",
            "feels? like (?:i'm|i am|we're) (?:stuck|lost)",
            "about to (?:become|get married|retire|graduate|have a (?:baby|child)|move)",
        ],
        &[
            "(?:暖|天|空|煤|燃|氧|电|脾|力|福|运|语|口|客|服)气",
            "《[^》]*》",
            "太太",
            "冷(?:水|饮|菜|门|笑话)",
            "热(?:水|爱|门|心)",
            "饿了么",
            "忙音",
            "慢(?:跑|性|炖)",
        ],
    )
});

/// A condition that is only looked into: "and see if it helps".
static NO_LASTS: LazyLock<Table> =
    LazyLock::new(|| compile(&["(?:see|check|know|wonder|test|sure|tell|watch) (?:if|when|whether)"], &["看看是不是"]));

/// Most letters, digits and ideographs of a text that tells of a moment and nothing else.
const MOST_LATIN: usize = 90;
const MOST_HAN: usize = 30;

/// Whether a text tells what holds only now (rule G6).
pub(crate) fn transient(text: &str) -> bool {
    let han = text.chars().filter(|c| is_han(*c)).count();
    if han > MOST_HAN || text.chars().filter(|c| c.is_alphanumeric()).count() > MOST_LATIN {
        return false;
    }
    // First, since it is the smaller table, and most of what is remembered lasts.
    if LASTS.says(text, &NO_LASTS) {
        return false;
    }
    let plain = without(text, &NO_STATE);
    NOW.is_match(&plain) || NOW_HAN.is_match(&plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g6_what_holds_only_now() {
        for text in [
            "gosh I'm knackered after that workout",
            "my phone's about to die",
            "not feeling great tbh",
            "For the rest of this chat, keep answers under 50 words",
            "The wifi here is terrible today",
            "I'm so over this week already",
            "Use the sandbox account while we're testing",
            "Just woke up",
            "刚练完腿，累成狗了",
            "手机快没电了",
            "我正跟银行客服排队呢",
            "今天网卡得要命",
            "还有十分钟我就要开下一个会了",
            "测试期间先用沙箱账号",
            "饿得前胸贴后背了",
            "有点小紧张",
            "我媳妇下楼遛狗去了",
            "等会儿要去接娃",
            "gonna grab lunch",
            "stuck in traffic",
            "feeling rough this morning",
        ] {
            assert!(transient(text), "{text}");
        }
        for text in [
            "I'm always tired on Mondays",
            "I get exhausted by open-plan offices",
            "Since the operation I'm sore in winter",
            "Today I was diagnosed with asthma",
            "I started a new job this week",
            "我从小怕冷",
            "今天起我戒糖了",
            "今天是我女儿的生日",
            "我一坐船就头晕",
            "我现在在西门子上班",
            "房东非说暖气坏了怪我",
            "我太太很忙，平时我做饭",
            "我弟弟当兵去了",
            "我妈在医院做护工",
            "I'm going to the gym every Monday",
        ] {
            assert!(!transient(text), "{text}");
        }
    }
}
